// Which of a few entrants costs least, by successive halving (K. Jamieson and A. Talwalkar, "Non-stochastic best arm
// identification and hyperparameter optimization", 2016): in a round each entrant has one sample, then the half with
// the higher costs leaves, until one is left. So most samples go to those that are hard to tell apart, and a slow
// entrant slows the job down once only.
//
// An entrant's cost is the median over all steps that it has had. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace hvd {

class Race {
 public:
  // Entrants are 0, 1, ...; there is at least one. Of equals the favourite stays, or else the one with the lower
  // number.
  Race(std::size_t entrants, std::size_t favourite);

  bool decided() const { return remaining_.size() == 1; }
  std::size_t winner() const { return remaining_.front(); }

  // Until it is decided: whose sample is next, and what the steps of that sample cost.
  std::size_t next() const { return remaining_[turn_]; }
  void took(std::span<const double> costs);

  // How many samples a race takes.
  static int samples(std::size_t entrants);

 private:
  static std::size_t half(std::size_t entrants) { return entrants > 2 ? (entrants + 1) / 2 : 1; }

  std::vector<std::size_t> remaining_;      // the favourite first, later by cost
  std::vector<std::vector<double>> costs_;  // of each step, by entrant
  std::size_t turn_ = 0;
};

}  // namespace hvd
