// Can this request be right, and does it agree with another one of the same name? Pure; the coordinator's texts.
#pragma once

#include <functional>
#include <string>

#include "core/config.h"
#include "core/negotiation/agreement.h"
#include "core/submission/request.h"

namespace hvd {

using DescribeRank = std::function<std::string(int)>;  // "rank 2 on host-b (pid 1234)"

// "allreduce 'grad'": how a text names an operation.
std::string operation_text(Collective collective, const std::string& name);

// Can ranks that have joined be left out: do the neutral elements that they stand for stay neutral?
bool tolerates_joined(const Request& request);

// Why those who have asked, whose parts of the agreement count, cannot do without rank `joined`, which has joined, or
// empty.
std::string find_need(const Agreement& agreement, const RankSet& asked, int joined, JoinScope scope,
                      const DescribeRank& describe_rank);

// What is wrong with this rank's request, in a set of so many ranks, by itself, or empty.
std::string find_fault(const Request& request, int set_size, int rank, const DescribeRank& describe_rank);

// The first thing in which two requests of one name differ and must not, with both ranks and both values, or empty.
std::string find_disagreement(const Request& first, int first_rank, const Request& other, int other_rank,
                              const DescribeRank& describe_rank);
// Whether there is none.
bool agree(const Request& a, const Request& b);

}  // namespace hvd
