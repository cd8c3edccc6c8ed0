// Checks whether all ranks support an optional feature, before any of them uses it.
#pragma once

#include <string>

#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"

namespace hvd {

// All ranks call with the same key, unique within the store. `objection`: why this rank cannot; empty if it can.
// Returns the same on every rank: empty if all can, else the lowest objecting rank and its reason. Throws Timeout.
std::string first_objection(Store& store, const Topology& topology, const std::string& key,
                            const std::string& objection, Deadline deadline);

}  // namespace hvd
