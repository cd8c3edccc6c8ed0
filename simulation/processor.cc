#include "simulation/processor.h"

#include <algorithm>
#include <numeric>

namespace hvd::simulation {

namespace {

constexpr std::size_t kTerms = 4;
using Terms = std::array<double, kTerms>;

Terms terms_of(const Amount& amount) {
  return {static_cast<double>(amount.messages), static_cast<double>(amount.requests), static_cast<double>(amount.hits),
          static_cast<double>(amount.bytes)};
}

// Other programs can only lengthen a measurement, so the lower quartile is used.
double lower_quartile(std::vector<double> values) {
  const auto quarter = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), quarter, values.end());
  return *quarter;
}

// Least squares of the relative errors, with non-negative coefficients, by coordinate descent: slow, but the problem is
// small and convex.
Terms fit_terms(const std::map<Amount, std::vector<double>>& samples) {
  std::vector<Terms> rows;  // divided by the measured time
  for (const auto& [amount, times] : samples) {
    Terms row = terms_of(amount);
    const double time = std::max(lower_quartile(times), 1.0);
    for (double& term : row) term /= time;
    rows.push_back(row);
  }
  Terms fitted{};
  for (int pass = 0; pass < 20'000; ++pass) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      double squares = 0;
      double product = 0;
      for (const Terms& row : rows) {
        const double others = std::inner_product(row.begin(), row.end(), fitted.begin(), 0.0) - row[i] * fitted[i];
        squares += row[i] * row[i];
        product += row[i] * (1.0 - others);
      }
      if (squares > 0) fitted[i] = std::max(product / squares, 0.0);
    }
  }
  return fitted;
}

}  // namespace

const Costs kMeasuredCosts = {
    Cost{.message = 595, .request = 176, .hit = 212, .byte = 0},
    Cost{.message = 484, .request = 119, .hit = 1.78, .byte = 0.0326},
    Cost{.message = 0, .request = 115, .hit = 0, .byte = 0},
    Cost{.message = 0, .request = 108, .hit = 0, .byte = 0},
    Cost{.message = 1304, .request = 163, .hit = 266, .byte = 0},
    Cost{.message = 1716, .request = 80, .hit = 120, .byte = 0},
    Cost{.message = 507, .request = 361, .hit = 90, .byte = 0},
    Cost{.message = 308, .request = 0, .hit = 253, .byte = 0},  // in the order of Work
};

double Cost::of(const Amount& amount) const {
  const Terms coefficients = {message, request, hit, byte};
  const Terms terms = terms_of(amount);
  return std::inner_product(terms.begin(), terms.end(), coefficients.begin(), 0.0);
}

Duration Stopwatch::time_of(Work work, const std::function<Amount()>& body) {
  const Duration began = thread_cpu_time();
  const Amount amount = body();
  const Duration time = thread_cpu_time() - began;
  if (amount == Amount{}) return Duration::zero();
  samples_[static_cast<std::size_t>(work)][amount].push_back(
      static_cast<double>(std::chrono::nanoseconds(time).count()));
  return time;
}

Costs Stopwatch::fit() const {
  Costs costs;
  for (std::size_t work = 0; work < kWorks; ++work) {
    const Terms fitted = fit_terms(samples_[work]);
    costs[work] = {.message = fitted[0], .request = fitted[1], .hit = fitted[2], .byte = fitted[3]};
  }
  return costs;
}

}  // namespace hvd::simulation
