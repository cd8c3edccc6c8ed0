// Checks requests: whether one is valid, and whether two of the same name agree. Pure; the texts are the coordinator's.
#pragma once

#include <functional>
#include <string>

#include "core/config.h"
#include "core/control/protocol/agreement.h"
#include "core/operation/operation_spec.h"

namespace hvd {

using DescribeRank = std::function<std::string(int)>;  // "rank 2 on host-b (pid 1234)"

// "allreduce 'grad'": how messages name an operation.
std::string operation_text(Collective collective, const std::string& name);

// Whether joined ranks can be left out, that is, whether the neutral elements in their place stay neutral.
bool tolerates_joined(const OperationSpec& spec);

// Why the ranks that have asked, whose parts of the agreement count, cannot proceed without rank `joined`, which has
// joined; empty if they can.
std::string find_need(const Agreement& agreement, const RankSet& asked, int joined, JoinScope scope,
                      const DescribeRank& describe_rank);

// What is wrong with this rank's request alone, in a set of `set_size` ranks; empty if it is valid.
std::string find_fault(const OperationSpec& spec, int set_size, int rank, const DescribeRank& describe_rank);

// The first forbidden difference between two requests of one name, with both ranks and both values; empty if none.
std::string find_disagreement(const OperationSpec& first, int first_rank, const OperationSpec& other, int other_rank,
                              const DescribeRank& describe_rank);
// Whether find_disagreement() would find none.
bool agree(const OperationSpec& a, const OperationSpec& b);

}  // namespace hvd
