// What ranks have asked for under one name: the request that they share and, for each rank, what may differ.
//
// Pure value of the coordinator. Grows while requests arrive; once all ranks have asked, it yields the response and
// stays in the coordinator's cache, so that a hit can be turned back into the request that it stands for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/negotiation/response.h"
#include "core/submission/request.h"

namespace hvd {

// May ranks bring different first dimensions (and splits)?
bool differs_by_rank(Collective collective);

class Agreement {
 public:
  Agreement(int set_size, const Request& first) : common_(first), asked_(static_cast<std::size_t>(set_size)) {}

  // Notes that the rank at this position of the set asks for `request`, which agrees with the others.
  void add(int position, const Request& request);
  // Takes over from an earlier agreement what the rank at this position asked for then.
  void add_from(const Agreement& earlier, int position);

  const Request& first() const { return common_; }  // as given to the constructor
  bool has(int position) const { return asked_[static_cast<std::size_t>(position)]; }
  // The request as the rank at this position wrote it; it must have asked.
  Request request_of(int position) const;
  // alltoall: its splits.
  std::span<const std::int64_t> splits_of(int position) const {
    return parts_[static_cast<std::size_t>(position)].splits;
  }

  // The execute response: request as the lowest rank wrote it, how many have asked, and rows. Positions that have not
  // asked bring 0 rows.
  Response response() const;

 private:
  struct RankPart {
    std::vector<std::int64_t> first_dimensions;  // by tensor
    std::vector<std::int64_t> splits;
  };
  std::vector<std::vector<std::int64_t>> rows() const;

  Request common_;
  std::vector<bool> asked_;      // by position in the set
  std::vector<RankPart> parts_;  // likewise; empty unless differs_by_rank
};

using AgreementPtr = std::shared_ptr<const Agreement>;

// Empty, or why a result would not fit a 63-bit size in bytes. For a complete execute response.
std::string find_overflow(const Response& response);

}  // namespace hvd
