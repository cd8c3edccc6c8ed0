// Finds the cheapest of a few entrants by successive halving (K. Jamieson and A. Talwalkar, "Non-stochastic best arm
// identification and hyperparameter optimization", 2016): in each round every entrant takes one sample, then the half
// with the higher costs leaves, until one is left. So most samples go to those that are hard to distinguish, and a slow
// entrant slows the job down only once.
//
// An entrant's cost is the median over all its steps. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace hvd {

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

}  // namespace hvd
