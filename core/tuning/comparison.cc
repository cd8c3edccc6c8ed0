#include "core/tuning/comparison.h"

#include <algorithm>
#include <cmath>

#include "core/tuning/median.h"

namespace hvd {

namespace {

constexpr double kLeastGain = 0.01;

}  // namespace

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
