#include "core/tuning/race.h"

#include <algorithm>
#include <numeric>

#include "core/tuning/median.h"

namespace hvd {

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

}  // namespace hvd
