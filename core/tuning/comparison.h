// Decides by step times, which are noisy, whether one thing is faster than another: the median, a race among several,
// and a comparison of two. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace hvd {

// Requires at least one value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

// Finds the cheapest of a few entrants by successive halving (K. Jamieson and A. Talwalkar, "Non-stochastic best arm
// identification and hyperparameter optimization", 2016): in each round every entrant takes one sample, then the half
// with the higher costs leaves, until one is left. So most samples go to those that are hard to distinguish, and a slow
// entrant slows the job down only once.
//
// An entrant's cost is the median over all its steps. Pure.

class Race {
 public:
  // Entrants are 0, 1, ...; at least one. Among equals the favourite wins, else the lower number.
  Race(std::size_t entrants, std::size_t favourite);

  bool decided() const { return remaining_.size() == 1; }
  std::size_t winner() const { return remaining_.front(); }

  // Until it is decided: which entrant takes the next sample, and the costs of that sample's steps.
  std::size_t next() const { return remaining_[turn_]; }
  void took(std::span<const double> costs);

  // The number of samples that a race takes.
  static int samples(std::size_t entrants);

 private:
  static std::size_t half(std::size_t entrants) { return entrants > 2 ? (entrants + 1) / 2 : 1; }

  std::vector<std::size_t> remaining_;      // the favourite first, later ordered by cost
  std::vector<std::vector<double>> costs_;  // of each step, by entrant
  std::size_t turn_ = 0;
};

// Tests whether a challenger is really faster than the incumbent: the two take samples alternately, in pairs, whose
// order alternates too, so that whatever else becomes slower or faster meanwhile affects both alike.
//
// The challenger wins if
// - it is faster in all pairs except at most one: between equals that happens once in 315 times, whatever the noise
//   looks like, and an outlier spoils one pair; and
// - its median over all steps is lower by 1 %, and by more than the noise: the possible error of the median of so many
//   of the incumbent's samples.
// The second lost pair ends the comparison, so that a challenger that is no better costs few samples. Pure.

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
