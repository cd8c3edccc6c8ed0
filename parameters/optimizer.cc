#include "parameters/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "parameters/optimizer_kernels.h"

namespace hvd {

namespace {

const OptimizerKernels& kernels() {
#if HVD_KERNELS_X86
  static const bool is_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (is_avx2) return kOptimizerAvx2;
#endif
  return kOptimizerScalar;
}

// In [0, 1): 24 bits.
float uniform(std::uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }

float initial_value(const InitializerSpec& spec, std::uint64_t of_row, std::uint32_t column) {
  const std::uint64_t bits = mix64(of_row + column);
  switch (spec.kind) {
    case InitializerSpec::Kind::constant: return spec.a;
    case InitializerSpec::Kind::uniform: return spec.a + (spec.b - spec.a) * uniform(bits);
    case InitializerSpec::Kind::normal: break;
  }
  // Box and Muller's transform; 1 - uniform() is never 0.
  const double radius = std::sqrt(-2 * std::log(1.0 - static_cast<double>(uniform(bits))));
  const double angle = 2 * std::numbers::pi * static_cast<double>(uniform(mix64(bits)));
  return spec.a + spec.b * static_cast<float>(radius * std::cos(angle));
}

OptimizerStep step_of(const OptimizerSpec& s) {
  return {.learning_rate = s.learning_rate,
          .momentum = s.momentum,
          .weight_decay = s.weight_decay,
          .beta1 = s.beta1,
          .beta2 = s.beta2,
          .epsilon = s.epsilon,
          .beta = s.beta,
          .l1 = s.l1,
          .l2 = s.l2,
          .nesterov = s.nesterov,
          .step = 0,
          .root = 0};
}

}  // namespace

std::size_t state_size(const OptimizerSpec& spec, std::size_t width) {
  switch (spec.rule) {
    case UpdateRule::assign:
    case UpdateRule::add: return 0;
    case UpdateRule::sgd: return spec.momentum == 0 ? 0 : width;
    case UpdateRule::adagrad: return spec.row_wise ? 1 : width;
    case UpdateRule::adam: return 1 + width + (spec.row_wise ? 1 : width);
    case UpdateRule::ftrl: return 2 * width;
    case UpdateRule::custom: return spec.state;
  }
  return 0;
}

void initialize_row(const TableSpec& spec, std::uint64_t key, float* row) {
  const std::size_t width = spec.width;
  const std::uint64_t of_row = mix64(mix64(spec.initializer.seed) + key);
  for (std::uint32_t i = 0; i < width; ++i) row[i] = initial_value(spec.initializer, of_row, i);
  float* const state = row + width;
  std::fill(state, state + state_size(spec.optimizer, width), 0.0f);
  const bool of_sums = spec.optimizer.rule == UpdateRule::adagrad || spec.optimizer.rule == UpdateRule::ftrl;
  if (!of_sums) return;
  float* const sums = spec.optimizer.rule == UpdateRule::ftrl ? state + width : state;
  std::fill(sums, sums + (spec.optimizer.row_wise ? 1 : width), spec.optimizer.accumulator);
  if (spec.optimizer.rule != UpdateRule::ftrl) return;
  // z for which the formula of FTRL gives the initial weights back.
  const float per_weight = (spec.optimizer.beta + std::sqrt(spec.optimizer.accumulator)) / spec.optimizer.learning_rate;
  for (std::size_t i = 0; i < width; ++i) {
    if (row[i] == 0) continue;
    state[i] = -row[i] * (per_weight + spec.optimizer.l2) - std::copysign(spec.optimizer.l1, row[i]);
  }
}

void update_row(const OptimizerSpec& spec, float* row, const float* gradient, std::size_t width) {
  const OptimizerKernels& loops = kernels();
  OptimizerStep step = step_of(spec);
  float* const state = row + width;
  switch (spec.rule) {
    case UpdateRule::assign: std::memcpy(row, gradient, width * sizeof(float)); return;
    case UpdateRule::add: return loops.add(row, gradient, width);
    case UpdateRule::sgd: return (spec.momentum == 0 ? loops.sgd : loops.momentum)(step, row, state, gradient, width);
    case UpdateRule::adagrad:
      return (spec.row_wise ? loops.adagrad_row : loops.adagrad)(step, row, state, gradient, width);
    case UpdateRule::adam: {
      const double t = static_cast<double>(*state += 1);
      step.step = static_cast<float>(double{spec.learning_rate} / (1 - std::pow(double{spec.beta1}, t)));
      step.root = static_cast<float>(std::sqrt(1 - std::pow(double{spec.beta2}, t)));
      return (spec.row_wise ? loops.adam_row : loops.adam)(step, row, state, gradient, width);
    }
    case UpdateRule::ftrl: return loops.ftrl(step, row, state, gradient, width);
    case UpdateRule::custom: return;  // see parameters/update_functions.h
  }
}

void add_values(float* sum, const float* values, std::size_t count) { kernels().add(sum, values, count); }

}  // namespace hvd
