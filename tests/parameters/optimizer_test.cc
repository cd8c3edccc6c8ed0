// The rules by which gradients change rows: against the same formulas in double, and one instruction set against
// another.
#include "parameters/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "parameters/optimizer_kernels.h"
#include "tests/support/catch.h"

namespace hvd {

#if defined(__x86_64__)
extern const OptimizerKernels kOptimizerAvx2;
#endif

namespace {

// The rules as their papers and torch.optim have them, for one row, in double.
class PlainOptimizer {
 public:
  PlainOptimizer(const OptimizerSpec& spec, std::vector<double> row) : s_(spec), row_(std::move(row)) {
    first_.assign(row_.size(), 0.0);
    second_.assign(row_.size(), s_.accumulator);
    if (s_.rule == UpdateRule::adam) second_.assign(row_.size(), 0.0);
    if (s_.rule == UpdateRule::ftrl) {
      for (std::size_t i = 0; i < row_.size(); ++i) first_[i] = z_of(row_[i]);
    }
  }

  const std::vector<double>& row() const { return row_; }

  void update(const std::vector<float>& gradient) {
    ++t_;
    std::vector<double> g(row_.size());
    const bool decays = s_.rule == UpdateRule::sgd || s_.rule == UpdateRule::adagrad || s_.rule == UpdateRule::adam;
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = gradient[i] + (decays ? s_.weight_decay * row_[i] : 0.0);
    std::vector<double> squares(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) squares[i] = g[i] * g[i];
    if (s_.row_wise) {
      const double mean = std::accumulate(squares.begin(), squares.end(), 0.0) / static_cast<double>(g.size());
      squares.assign(g.size(), mean);
    }
    for (std::size_t i = 0; i < g.size(); ++i) update(i, g[i], squares[i]);
  }

 private:
  double z_of(double w) const {
    if (w == 0) return 0;
    const double per_weight = (s_.beta + std::sqrt(double{s_.accumulator})) / s_.learning_rate;
    return -w * (per_weight + s_.l2) - std::copysign(double{s_.l1}, w);
  }

  void update(std::size_t i, double g, double square) {
    const double rate = s_.learning_rate;
    double &w = row_[i], &m = first_[i], &n = second_[i];
    switch (s_.rule) {
      case UpdateRule::assign: w = g; return;
      case UpdateRule::add: w += g; return;
      case UpdateRule::sgd:
        m = s_.momentum * m + g;
        w -= rate * (s_.nesterov ? g + s_.momentum * m : m);
        return;
      case UpdateRule::adagrad:
        n += square;
        w -= rate * g / (std::sqrt(n) + s_.epsilon);
        return;
      case UpdateRule::adam: {
        m = s_.beta1 * m + (1 - double{s_.beta1}) * g;
        n = s_.beta2 * n + (1 - double{s_.beta2}) * square;
        const double mean = m / (1 - std::pow(double{s_.beta1}, t_)), var = n / (1 - std::pow(double{s_.beta2}, t_));
        w -= rate * mean / (std::sqrt(var) + s_.epsilon);
        return;
      }
      case UpdateRule::ftrl: {
        const double sigma = (std::sqrt(n + square) - std::sqrt(n)) / rate;
        m += g - sigma * w;
        n += square;
        const double shrunk = std::abs(m) <= s_.l1 ? 0 : m - std::copysign(double{s_.l1}, m);
        w = shrunk == 0 ? 0 : -shrunk / ((s_.beta + std::sqrt(n)) / rate + s_.l2);
        return;
      }
      case UpdateRule::custom: FAIL("a function of the program's has no formula");
    }
  }

  const OptimizerSpec s_;
  std::vector<double> row_, first_, second_;
  double t_ = 0;
};

struct OptimizerCase {
  const char* name;
  OptimizerSpec spec;
};

const std::vector<OptimizerCase> kOptimizerCases = {
    {"assign", {.rule = UpdateRule::assign}},
    {"add", {.rule = UpdateRule::add}},
    {"sgd", {.rule = UpdateRule::sgd, .learning_rate = 0.1f}},
    {"sgd, decay", {.rule = UpdateRule::sgd, .learning_rate = 0.1f, .weight_decay = 0.05f}},
    {"momentum", {.rule = UpdateRule::sgd, .learning_rate = 0.1f, .momentum = 0.9f}},
    {"momentum, decay", {.rule = UpdateRule::sgd, .learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.05f}},
    {"nesterov", {.rule = UpdateRule::sgd, .nesterov = true, .learning_rate = 0.1f, .momentum = 0.9f}},
    {"adagrad", {.rule = UpdateRule::adagrad, .learning_rate = 0.1f, .accumulator = 0.1f}},
    {"adagrad, decay", {.rule = UpdateRule::adagrad, .learning_rate = 0.1f, .weight_decay = 0.05f}},
    {"adagrad by row", {.rule = UpdateRule::adagrad, .row_wise = true, .learning_rate = 0.1f, .accumulator = 0.1f}},
    {"adagrad by row, decay",
     {.rule = UpdateRule::adagrad, .row_wise = true, .learning_rate = 0.1f, .weight_decay = 0.5f}},
    {"adam", {.rule = UpdateRule::adam, .learning_rate = 0.01f}},
    {"adam, decay", {.rule = UpdateRule::adam, .learning_rate = 0.01f, .weight_decay = 0.05f}},
    {"adam by row", {.rule = UpdateRule::adam, .row_wise = true, .learning_rate = 0.01f}},
    {"adam by row, decay", {.rule = UpdateRule::adam, .row_wise = true, .learning_rate = 0.01f, .weight_decay = 0.5f}},
    {"adam, other betas", {.rule = UpdateRule::adam, .learning_rate = 0.01f, .beta1 = 0, .beta2 = 0.5f}},
    {"ftrl", {.rule = UpdateRule::ftrl, .learning_rate = 0.1f}},
    {"ftrl, sparse", {.rule = UpdateRule::ftrl, .learning_rate = 0.5f, .accumulator = 0.1f, .l1 = 0.2f, .l2 = 0.1f}},
};

std::vector<float> random_values(std::mt19937& dice, std::size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(dice);
  return values;
}

std::vector<float> new_row(const TableSpec& spec, std::uint64_t key = 1) {
  std::vector<float> row(spec.width + state_size(spec.optimizer, spec.width), -77.0f);
  initialize_row(spec, key, row.data());
  return row;
}

TableSpec normal_table(std::uint32_t width, const OptimizerSpec& optimizer) {
  return {.name = "rows",
          .width = width,
          .optimizer = optimizer,
          .initializer = {.kind = InitializerSpec::Kind::normal, .b = 0.5f, .seed = 3}};
}

TEST_CASE("optimizers follow their formulas") {
  std::mt19937 dice(1);
  for (const auto& [name, optimizer] : kOptimizerCases) {
    for (const std::uint32_t width : {1u, 7u, 8u, 33u}) {
      const TableSpec spec = normal_table(width, optimizer);
      std::vector<float> row = new_row(spec);
      PlainOptimizer plain(optimizer, {row.begin(), row.begin() + width});
      for (int step = 0; step < 50; ++step) {
        const auto gradient = random_values(dice, width);
        update_row(optimizer, row.data(), gradient.data(), width);
        plain.update(gradient);
        for (std::size_t i = 0; i < width; ++i) {
          INFO(name << ", width " << width << ", step " << step << ", column " << i);
          REQUIRE(row[i] == Approx(plain.row()[i]).epsilon(2e-4).margin(2e-5));
        }
      }
    }
  }
}

TEST_CASE("plain SGD is one fused multiply-add a value") {
  std::mt19937 dice(2);
  for (const float decay : {0.0f, 0.01f}) {
    const OptimizerSpec spec{.rule = UpdateRule::sgd, .learning_rate = 0.1f, .weight_decay = decay};
    auto row = random_values(dice, 37);
    auto expected = row;
    for (int step = 0; step < 20; ++step) {
      const auto gradient = random_values(dice, row.size());
      update_row(spec, row.data(), gradient.data(), row.size());
      for (std::size_t i = 0; i < row.size(); ++i) {
        const float g = decay == 0 ? gradient[i] : std::fmaf(expected[i], decay, gradient[i]);
        expected[i] = std::fmaf(g, -0.1f, expected[i]);
      }
    }
    CHECK(row == expected);
  }
}

TEST_CASE("rows that nothing has moved stay where they are") {
  for (const auto& [name, optimizer] : kOptimizerCases) {
    if (optimizer.rule == UpdateRule::assign || optimizer.weight_decay != 0 || optimizer.l1 != 0) continue;
    const TableSpec spec = normal_table(9, optimizer);
    auto row = new_row(spec);
    const std::vector<float> before(row.begin(), row.begin() + 9), zeros(9, 0.0f);
    update_row(optimizer, row.data(), zeros.data(), 9);
    INFO(name);
    for (std::size_t i = 0; i < 9; ++i) CHECK(row[i] == Approx(before[i]).epsilon(1e-5));
  }
}

TEST_CASE("a weight that FTRL holds at zero is zero, whatever the denominator") {
  const OptimizerSpec ftrl{.rule = UpdateRule::ftrl, .learning_rate = 0.1f, .beta = 0, .l1 = 1};
  std::vector<float> row = {0, 0, 0, 0, 0, 0};
  const std::vector<float> gradient = {0.0f, 0.5f};
  update_row(ftrl, row.data(), gradient.data(), 2);
  CHECK(row[0] == 0.0f);
  CHECK(row[1] == 0.0f);
}

TEST_CASE("all instruction sets give the same bits") {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
  std::mt19937 dice(3);
  const OptimizerStep step{.learning_rate = 0.1f,
                           .momentum = 0.9f,
                           .weight_decay = 0.01f,
                           .beta1 = 0.9f,
                           .beta2 = 0.999f,
                           .epsilon = 1e-8f,
                           .beta = 1,
                           .l1 = 0.1f,
                           .l2 = 0.1f,
                           .nesterov = true,
                           .step = 0.123f,
                           .root = 0.456f};
  OptimizerStep plain = step;
  plain.nesterov = false;
  plain.weight_decay = 0;
  using K = OptimizerKernels;
  for (const auto loop : {&K::sgd, &K::momentum, &K::adagrad, &K::adagrad_row, &K::adam, &K::adam_row, &K::ftrl}) {
    for (std::size_t width = 1; width < 70; ++width) {
      auto row = random_values(dice, width), state = random_values(dice, 2 * width + 1);
      for (float& value : state) value = std::abs(value);
      const auto gradient = random_values(dice, width);
      auto other_row = row, other_state = state;
      for (const OptimizerStep& one : {step, plain}) {
        (kOptimizerScalar.*loop)(one, row.data(), state.data(), gradient.data(), width);
        (kOptimizerAvx2.*loop)(one, other_row.data(), other_state.data(), gradient.data(), width);
      }
      REQUIRE(std::memcmp(row.data(), other_row.data(), width * sizeof(float)) == 0);
      REQUIRE(std::memcmp(state.data(), other_state.data(), state.size() * sizeof(float)) == 0);
      auto sum = row;
      kOptimizerScalar.add(row.data(), gradient.data(), width);
      kOptimizerAvx2.add(sum.data(), gradient.data(), width);
      REQUIRE(row == sum);
    }
  }
#endif
}

TEST_CASE("initial values are a function of seed, key and column") {
  TableSpec spec{.name = "rows", .width = 4096};
  spec.optimizer.rule = UpdateRule::add;
  spec.initializer = {.kind = InitializerSpec::Kind::constant, .a = 2.5f};
  CHECK(new_row(spec) == std::vector<float>(4096, 2.5f));

  spec.initializer = {.kind = InitializerSpec::Kind::uniform, .a = -1, .b = 3, .seed = 1};
  const auto uniform = new_row(spec);
  CHECK(std::ranges::all_of(uniform, [](float value) { return value >= -1 && value < 3; }));
  CHECK(std::accumulate(uniform.begin(), uniform.end(), 0.0) / 4096 == Approx(1.0).margin(0.1));

  spec.initializer = {.kind = InitializerSpec::Kind::normal, .a = 5, .b = 2, .seed = 1};
  const auto normal = new_row(spec);
  double mean = 0, square = 0;
  for (const float value : normal) mean += value / 4096.0;
  for (const float value : normal) square += (value - mean) * (value - mean) / 4096.0;
  CHECK(mean == Approx(5.0).margin(0.15));
  CHECK(std::sqrt(square) == Approx(2.0).margin(0.1));

  const bool is_same = new_row(spec, 1) == normal, is_other = new_row(spec, 2) != normal;
  CHECK(is_same);
  CHECK(is_other);
  // Neither seeds and keys that are equal, nor those that change places, have rows in common.
  const auto row_of = [&](std::uint64_t seed, std::uint64_t key) {
    spec.initializer.seed = seed;
    return new_row(spec, key);
  };
  const bool may_change_places = row_of(1, 2) != row_of(2, 1), may_be_equal = row_of(1, 1) != row_of(2, 2);
  CHECK(may_change_places);
  CHECK(may_be_equal);
}

}  // namespace
}  // namespace hvd
