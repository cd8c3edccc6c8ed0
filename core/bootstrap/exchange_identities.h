// The first step of the rendezvous: every rank learns the identities of all ranks.
#pragma once

#include <vector>

#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"

namespace hvd {

// All ranks of the job must call; returns the identities by rank once all have come. Rank 0 collects them and
// publishes the list, so that the store answers 3 * size requests, not size * size. Throws Timeout that names the
// ranks that did not come; InvalidArgument if another process has come as this rank, usually this one's parent.
std::vector<RankIdentity> exchange_identities(Store& store, int rank, int size, const RankIdentity& own,
                                              Deadline deadline);

// "2, 5, 7 and 12 more"; pure.
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace hvd
