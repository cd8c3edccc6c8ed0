// Whether a challenger is really faster than the incumbent: the two take samples by turns, in pairs, whose order
// changes from pair to pair, so that whatever else becomes slower or faster meanwhile meets both alike.
//
// The challenger wins if
// - it is the faster one in all pairs but one at most: between equals that happens once in 315 times, whatever the
//   noise looks like, and an outlier spoils one pair; and
// - its median over all steps is lower by 1 %, and by more than the noise: how far the median of so many of the
//   incumbent's samples may be off.
// The second pair that is lost ends it at once, so that a challenger which is no better costs few samples. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace hvd {

class Comparison {
 public:
  enum class Side { incumbent, challenger };

  // Until verdict(): whose sample is next, and what the steps of that sample cost.
  Side next() const;
  void took(std::span<const double> costs);

  // Who it is to be, once that is known.
  std::optional<Side> verdict() const { return verdict_; }

  static constexpr int kPairs = 12;
  static constexpr int kPairsToLose = 2;

 private:
  struct Costs {
    std::vector<double> steps;
    std::vector<double> samples;  // the median of each
  };
  void judge_pair();
  bool is_clearly_faster() const;

  Costs& of(Side side) { return costs_[static_cast<std::size_t>(side)]; }
  const Costs& of(Side side) const { return costs_[static_cast<std::size_t>(side)]; }

  std::array<Costs, 2> costs_;
  int samples_ = 0;
  int lost_ = 0;  // pairs, by the challenger
  std::optional<Side> verdict_;
};

}  // namespace hvd
