// Tests whether a challenger is really faster than the incumbent: the two take samples alternately, in pairs, whose
// order alternates too, so that whatever else becomes slower or faster meanwhile affects both alike.
//
// The challenger wins if
// - it is faster in all pairs except at most one: between equals that happens once in 315 times, whatever the noise
//   looks like, and an outlier spoils one pair; and
// - its median over all steps is lower by 1 %, and by more than the noise: the possible error of the median of so many
//   of the incumbent's samples.
// The second lost pair ends the comparison, so that a challenger that is no better costs few samples. Pure.
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

  // Until verdict(): which side takes the next sample, and the costs of that sample's steps.
  Side next() const;
  void took(std::span<const double> costs);

  // The winner, once decided.
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
  int lost_ = 0;  // pairs lost by the challenger
  std::optional<Side> verdict_;
};

}  // namespace hvd
