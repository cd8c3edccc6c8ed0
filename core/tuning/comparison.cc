#include "core/tuning/comparison.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hvd {

namespace {

constexpr double kLeastGain = 0.01;

}  // namespace

Race::Race(std::size_t entrants, std::size_t favourite) : remaining_(entrants), costs_(entrants) {
  std::iota(remaining_.begin(), remaining_.end(), std::size_t{0});
  const auto first = remaining_.begin() + static_cast<std::ptrdiff_t>(favourite);
  std::rotate(remaining_.begin(), first, first + 1);
}

void Race::took(std::span<const double> costs) {
  std::vector<double>& all = costs_[next()];
  all.insert(all.end(), costs.begin(), costs.end());
  if (++turn_ < remaining_.size()) return;
  turn_ = 0;
  std::stable_sort(remaining_.begin(), remaining_.end(),
                   [&](std::size_t a, std::size_t b) { return median(costs_[a]) < median(costs_[b]); });
  remaining_.resize(half(remaining_.size()));
}

int Race::samples(std::size_t entrants) {
  int total = 0;
  for (; entrants > 1; entrants = half(entrants)) total += static_cast<int>(entrants);
  return total;
}

Comparison::Side Comparison::next() const {
  const bool swapped = samples_ / 2 % 2 != 0;
  const bool second = samples_ % 2 != 0;
  return swapped == second ? Side::incumbent : Side::challenger;
}

void Comparison::took(std::span<const double> costs) {
  Costs& side = of(next());
  side.steps.insert(side.steps.end(), costs.begin(), costs.end());
  side.samples.push_back(median({costs.begin(), costs.end()}));
  if (++samples_ % 2 == 0) judge_pair();
}

void Comparison::judge_pair() {
  if (of(Side::challenger).samples.back() >= of(Side::incumbent).samples.back()) ++lost_;
  if (lost_ == kPairsToLose) {
    verdict_ = Side::incumbent;
  } else if (samples_ == 2 * kPairs) {
    verdict_ = is_clearly_faster() ? Side::challenger : Side::incumbent;
  }
}

bool Comparison::is_clearly_faster() const {
  const std::vector<double>& samples = of(Side::incumbent).samples;
  const double middle = median(samples);
  std::vector<double> deviations;
  for (const double sample : samples) deviations.push_back(std::abs(sample - middle));
  const double noise = median(deviations) / std::sqrt(samples.size());
  const double incumbent = median(of(Side::incumbent).steps);
  return median(of(Side::challenger).steps) <= incumbent - std::max(noise, kLeastGain * incumbent);
}

}  // namespace hvd
