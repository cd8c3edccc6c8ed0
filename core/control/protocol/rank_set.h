// A set of a job's ranks, stored as ranges: subtrees of the control tree are few ranges, however many ranks they have.
//
// Pure value. Operations take time proportional to the number of ranges.
#pragma once

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

  bool contains(int rank) const;
  bool contains(const RankSet& other) const;
  bool intersects(const RankSet& other) const;

  void add(const RankSet& other);
  void remove(const RankSet& other);
  // Keeps the allocated memory.
  void clear();

  // In ascending order.
  void for_each(const auto& body) const {
    for (const Range& range : ranges_) {
      for (int rank = range.begin; rank < range.end; ++rank) body(rank);
    }
  }
  std::vector<int> to_vector() const;

  bool operator==(const RankSet&) const = default;

 private:
  void add(Range range);

  std::vector<Range> ranges_;  // ascending, with gaps between them
  int count_ = 0;
};

// Ranks of `a` that are also in `b`; ranks of `a` that are not.
RankSet intersection(const RankSet& a, const RankSet& b);
RankSet difference(RankSet a, const RankSet& b);

}  // namespace hvd
