// Agreement: what the ranks that have asked for a name have in common, and for each rank what may differ. Checks their
// requests, alone and against each other.
//
// Pure; the texts are the coordinator's. An Agreement grows while requests arrive; once all ranks have asked, it yields
// the response and stays in the coordinator's cache, so that a hit can be converted back into the request that it
// stands for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/control/protocol/messages.h"
#include "core/operation/operation_spec.h"

namespace hvd {

// The part of a request whose collective differs by rank.
RankPart part_of(const OperationSpec& spec);
void put_part(const RankPart& part, OperationSpec& spec);

// The request of `some` (at least one) of the ranks that share a request.
SharedRequest request_of(const RankSet& some, const RankSet& ranks, const SharedRequest& shared);

class Agreement {
 public:
  Agreement(int size, OperationSpec first);

  // Records that these ranks ask for `shared`, which agrees with the other requests.
  void add(const RankSet& ranks, const SharedRequest& shared);
  // Copies from an earlier agreement what these ranks asked for then.
  void add_from(const Agreement& earlier, const RankSet& ranks);

  const OperationSpec& first() const;  // as given to the constructor
  const RankSet& asked() const;
  // The request of these ranks, which must have asked.
  SharedRequest request_of(const RankSet& ranks) const;
  // alltoall: the splits of one rank.
  std::span<const std::int64_t> splits_of(int rank) const;

  // The execute response: the request of the lowest rank, how many ranks have asked, and rows. Ranks that have not
  // asked have 0 rows.
  Response response() const;

 private:
  std::vector<std::vector<std::int64_t>> rows() const;

  std::size_t size_;  // of the process set
  OperationSpec common_;
  RankSet asked_;
  std::vector<RankPart> parts_;  // by rank; empty unless differs_by_rank
};

using AgreementPtr = std::shared_ptr<const Agreement>;

// Empty, or why what a rank receives or sends would exceed a 63-bit size in bytes. For a complete execute response,
// whose row lists have the right lengths.
std::string find_overflow(const Response& response);

// ---- Checks of requests

using DescribeRank = std::function<std::string(int)>;  // "rank 2 on host-b (pid 1234)"

// "allreduce 'grad'": how messages name an operation.
std::string operation_text(Collective collective, const std::string& name);

// Whether joined ranks can be left out, that is, whether the neutral elements in their place stay neutral.
bool tolerates_joined(const OperationSpec& spec);

// Why the ranks that have asked, whose parts of the agreement count, cannot proceed without rank `joined`, which has
// joined; empty if they can.
std::string find_need(const Agreement& agreement, const RankSet& asked, int joined, JoinScope scope,
                      const DescribeRank& describe_rank);

// Throws Internal: these ranks break the protocol.
[[noreturn]] void report_violation(const RankSet& ranks, const std::string& what, const DescribeRank& describe_rank);

// What is wrong with this rank's request alone, in a set of `set_size` ranks; empty if it is valid.
std::string find_fault(const OperationSpec& spec, int set_size, int rank, const DescribeRank& describe_rank);

// The first forbidden difference between two requests of one name, with both ranks and both values; empty if none.
std::string find_disagreement(const OperationSpec& first, int first_rank, const OperationSpec& other, int other_rank,
                              const DescribeRank& describe_rank);
// Whether find_disagreement() would find none.
bool agree(const OperationSpec& a, const OperationSpec& b);

}  // namespace hvd
