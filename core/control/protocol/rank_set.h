// A set of a job's ranks, stored as ranges: subtrees of the control tree are few ranges, however many ranks they have;
// and the sources of messages, each with the ranks that it sends for.
//
// Pure values. Operations take time proportional to the number of ranges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace hvd {

class RankSet {
 public:
  struct Range {
    int begin = 0;
    int end = 0;  // one past the last
    bool operator==(const Range&) const = default;
  };

  RankSet() = default;
  explicit RankSet(int rank) : RankSet(rank, rank + 1) {}
  // The ranks from `begin` to `end` - 1.
  RankSet(int begin, int end) : count_(end > begin ? end - begin : 0) {
    if (count_ > 0) ranges_.push_back({begin, end});
  }

  bool empty() const { return count_ == 0; }
  int count() const { return count_; }
  int lowest() const { return ranges_.front().begin; }
  int highest() const { return ranges_.back().end - 1; }
  const std::vector<Range>& ranges() const { return ranges_; }

  bool contains(int rank) const {
    const auto range = range_after(ranges_, rank);
    return range != ranges_.end() && range->begin <= rank;
  }
  bool contains(const RankSet& other) const {
    return std::all_of(other.ranges_.begin(), other.ranges_.end(), [this](const Range& part) {
      const auto range = range_after(ranges_, part.begin);
      return range != ranges_.end() && range->begin <= part.begin && part.end <= range->end;
    });
  }
  bool intersects(const RankSet& other) const {
    return std::any_of(other.ranges_.begin(), other.ranges_.end(), [this](const Range& part) {
      const auto range = range_after(ranges_, part.begin);
      return range != ranges_.end() && range->begin < part.end;
    });
  }

  void add(const RankSet& other) {
    for (const Range& range : other.ranges_) add(range);
  }
  void remove(const RankSet& other) {
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
  // Keeps the allocated memory.
  void clear() {
    ranges_.clear();
    count_ = 0;
  }

  // In ascending order.
  void for_each(const auto& body) const {
    for (const Range& range : ranges_) {
      for (int rank = range.begin; rank < range.end; ++rank) body(rank);
    }
  }
  std::vector<int> to_vector() const {
    std::vector<int> ranks;
    ranks.reserve(static_cast<std::size_t>(count_));
    for_each([&](int rank) { ranks.push_back(rank); });
    return ranks;
  }

  bool operator==(const RankSet&) const = default;

 private:
  // The first range that ends behind `rank`.
  static auto range_after(auto& ranges, int rank) -> decltype(ranges.begin()) {
    return std::upper_bound(ranges.begin(), ranges.end(), rank,
                            [](int value, const Range& range) { return value < range.end; });
  }
  // Merges the range with all ranges that it overlaps or touches.
  void add(Range range) {
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

  std::vector<Range> ranges_;  // ascending, with gaps between them
  int count_ = 0;
};

// Ranks of `a` that are not in `b`; ranks of `a` that are.
inline RankSet difference(RankSet a, const RankSet& b) {
  a.remove(b);
  return a;
}
inline RankSet intersection(const RankSet& a, const RankSet& b) { return difference(a, difference(a, b)); }

// The direct senders to a node, each with the ranks it sends for, and the number of messages that all of them have
// applied. Owned by what reads the messages: the Coordinator or a RequestAggregator.
class Sources {
 public:
  struct Source {
    RankSet ranks;
    std::uint64_t applied = 0;  // the number of messages that all of them have applied
  };

  explicit Sources(const std::map<int, RankSet>& ranks_of) {
    for (const auto& [source, ranks] : ranks_of) sources_[source].ranks = ranks;
  }

  // Null if this rank is to send nothing.
  Source* find(int source) {
    const auto found = sources_.find(source);
    return found == sources_.end() ? nullptr : &found->second;
  }

  // All sources have applied at least so many messages.
  void have_applied(std::uint64_t number) {
    for (auto& [rank, source] : sources_) source.applied = std::max(source.applied, number);
  }

  // The join of `ranks`, among `joined`, ends with this message: they apply it before they send anything.
  void end_join(const RankSet& joined, const RankSet& ranks, std::uint64_t number) {
    for (auto& [rank, source] : sources_) {
      if (joined.contains(source.ranks) && ranks.intersects(source.ranks)) source.applied = number;
    }
  }

  // The number of messages applied by every rank whose hits may still be in flight; at most `sent`. A rank that has
  // joined has no hit in flight, and sends none before it has applied everything up to the join's end.
  std::uint64_t applied_by_all(std::uint64_t sent, const RankSet& joined) const {
    for (const auto& [rank, source] : sources_) {
      if (!joined.contains(source.ranks)) sent = std::min(sent, source.applied);
    }
    return sent;
  }

 private:
  std::map<int, Source> sources_;
};

}  // namespace hvd
