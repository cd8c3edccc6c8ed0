#include "core/control/protocol/rank_set.h"

#include <algorithm>
#include <utility>

namespace hvd {

namespace {

// The first range that ends behind `rank`.
auto range_after(auto& ranges, int rank) {
  return std::upper_bound(ranges.begin(), ranges.end(), rank,
                          [](int value, const RankSet::Range& range) { return value < range.end; });
}

}  // namespace

bool RankSet::contains(int rank) const {
  const auto range = range_after(ranges_, rank);
  return range != ranges_.end() && range->begin <= rank;
}

bool RankSet::contains(const RankSet& other) const {
  return std::all_of(other.ranges_.begin(), other.ranges_.end(), [this](const Range& part) {
    const auto range = range_after(ranges_, part.begin);
    return range != ranges_.end() && range->begin <= part.begin && part.end <= range->end;
  });
}

bool RankSet::intersects(const RankSet& other) const {
  return std::any_of(other.ranges_.begin(), other.ranges_.end(), [this](const Range& part) {
    const auto range = range_after(ranges_, part.begin);
    return range != ranges_.end() && range->begin < part.end;
  });
}

void RankSet::add(const RankSet& other) {
  for (const Range& range : other.ranges_) add(range);
}

// Merges the range with all ranges that it overlaps or touches.
void RankSet::add(Range range) {
  const auto first = range_after(ranges_, range.begin - 1);
  auto last = first;
  for (; last != ranges_.end() && last->begin <= range.end; ++last) {
    range.begin = std::min(range.begin, last->begin);
    range.end = std::max(range.end, last->end);
    count_ -= last->end - last->begin;
  }
  count_ += range.end - range.begin;
  if (first == last) {
    ranges_.insert(first, range);
  } else {
    *first = range;
    ranges_.erase(first + 1, last);
  }
}

void RankSet::remove(const RankSet& other) {
  if (!intersects(other)) return;
  std::vector<Range> kept;
  auto hole = other.ranges_.begin();
  for (Range range : ranges_) {
    while (hole != other.ranges_.end() && hole->end <= range.begin) ++hole;
    for (auto in = hole; in != other.ranges_.end() && in->begin < range.end; ++in) {
      if (range.begin < in->begin) kept.push_back({range.begin, in->begin});
      range.begin = std::min(in->end, range.end);
    }
    if (range.begin < range.end) kept.push_back(range);
  }
  ranges_ = std::move(kept);
  count_ = 0;
  for (const Range& range : ranges_) count_ += range.end - range.begin;
}

void RankSet::clear() {
  ranges_.clear();
  count_ = 0;
}

std::vector<int> RankSet::to_vector() const {
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(count_));
  for_each([&](int rank) { ranks.push_back(rank); });
  return ranks;
}

RankSet difference(RankSet a, const RankSet& b) {
  a.remove(b);
  return a;
}

RankSet intersection(const RankSet& a, const RankSet& b) { return difference(a, difference(a, b)); }

}  // namespace hvd
