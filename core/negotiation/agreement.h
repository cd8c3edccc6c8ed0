// What ranks have asked for under one name: the request that they share and, for each rank, what may differ.
//
// Pure value of the coordinator. Grows while requests arrive; once all ranks have asked, it yields the response and
// stays in the coordinator's cache, so that a hit can be turned back into the request that it stands for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/negotiation/rank_message.h"
#include "core/negotiation/response.h"
#include "core/submission/request.h"

namespace hvd {

// May ranks bring different first dimensions (and splits)?
bool differs_by_rank(Collective collective);

// Of a request whose collective differs by rank.
RankPart part_of(const Request& request);
void put_part(const RankPart& part, Request& request);

// What `some` of the ranks that share a request, at least one, ask for.
SharedRequest request_of(const RankSet& some, const RankSet& ranks, const SharedRequest& shared);

class Agreement {
 public:
  Agreement(int size, Request first) : size_(static_cast<std::size_t>(size)), common_(std::move(first)) {}

  // Notes that these ranks ask for `shared`, which agrees with the others.
  void add(const RankSet& ranks, const SharedRequest& shared);
  // Takes over from an earlier agreement what these ranks asked for then.
  void add_from(const Agreement& earlier, const RankSet& ranks) { add(ranks, earlier.request_of(ranks)); }

  const Request& first() const { return common_; }  // as given to the constructor
  const RankSet& asked() const { return asked_; }
  // The request as these ranks wrote it; they must have asked.
  SharedRequest request_of(const RankSet& ranks) const;
  // alltoall: its splits.
  std::span<const std::int64_t> splits_of(int rank) const { return parts_[static_cast<std::size_t>(rank)].splits; }

  // The execute response: request as the lowest rank wrote it, how many have asked, and rows. Ranks that have not asked
  // bring 0 rows.
  Response response() const;

 private:
  std::vector<std::vector<std::int64_t>> rows() const;

  std::size_t size_;  // of the process set
  Request common_;
  RankSet asked_;
  std::vector<RankPart> parts_;  // by rank; empty unless differs_by_rank
};

using AgreementPtr = std::shared_ptr<const Agreement>;

// Empty, or why a result would not fit a 63-bit size in bytes. For a complete execute response.
std::string find_overflow(const Response& response);

}  // namespace hvd
