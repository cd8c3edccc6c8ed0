// Can this request be right, and does it agree with another one of the same name? Pure; the coordinator's texts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/collective/process_set.h"
#include "core/negotiation/agreement.h"
#include "core/submission/request.h"

namespace hvd {

using DescribeRank = std::function<std::string(int)>;  // "rank 2 on host-b (pid 1234)"

// "allreduce 'grad'": how a text names an operation.
std::string operation_text(Collective collective, const std::string& name);

// Can ranks that have joined be left out: do the neutral elements that they stand for stay neutral?
bool tolerates_joined(const Request& request);

// Why those who have asked cannot do without the rank at position `joined`, which has joined, or empty. `asked` says by
// position whose part of the agreement counts.
std::string find_need(const Agreement& agreement, const std::vector<bool>& asked, const ProcessSet& set, int joined,
                      const DescribeRank& describe_rank);

// What is wrong with this rank's request by itself, or empty.
std::string find_fault(const Request& request, const ProcessSet& set, int rank, const DescribeRank& describe_rank);

// The first thing in which two requests of one name differ and must not, with both ranks and both values, or empty.
std::string find_disagreement(const Request& first, int first_rank, const Request& other, int other_rank,
                              const DescribeRank& describe_rank);

}  // namespace hvd
