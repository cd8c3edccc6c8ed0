// The loops of optimizer.cc, compiled once for each instruction set; every function has internal linkage, so that none
// is substituted for that of another set.
#pragma once

#include <cstddef>

#include "parameters/optimizer_kernels.h"

namespace hvd {
namespace {

float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

void loop_add(float* __restrict sum, const float* __restrict values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
}

void loop_sgd(const OptimizerStep& s, float* __restrict row, float* __restrict, const float* __restrict gradient,
              std::size_t width) {
  if (s.weight_decay == 0) {
    for (std::size_t i = 0; i < width; ++i) row[i] = fused(gradient[i], -s.learning_rate, row[i]);
  } else {
    for (std::size_t i = 0; i < width; ++i) {
      row[i] = fused(fused(row[i], s.weight_decay, gradient[i]), -s.learning_rate, row[i]);
    }
  }
}

void loop_momentum(const OptimizerStep& s, float* __restrict row, float* __restrict state,
                   const float* __restrict gradient, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) {
    const float g = fused(row[i], s.weight_decay, gradient[i]);
    const float m = state[i] * s.momentum + g;
    state[i] = m;
    row[i] = fused(s.nesterov ? fused(m, s.momentum, g) : m, -s.learning_rate, row[i]);
  }
}

float mean_of_squares(const OptimizerStep& s, const float* row, const float* gradient, std::size_t width) {
  float sum = 0;
  for (std::size_t i = 0; i < width; ++i) {
    const float g = fused(row[i], s.weight_decay, gradient[i]);
    sum = fused(g, g, sum);
  }
  return sum / static_cast<float>(width);
}

void loop_adagrad(const OptimizerStep& s, float* __restrict row, float* __restrict state,
                  const float* __restrict gradient, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) {
    const float g = fused(row[i], s.weight_decay, gradient[i]);
    state[i] = fused(g, g, state[i]);
    row[i] -= s.learning_rate * (g / (__builtin_sqrtf(state[i]) + s.epsilon));
  }
}

void loop_adagrad_row(const OptimizerStep& s, float* __restrict row, float* __restrict state,
                      const float* __restrict gradient, std::size_t width) {
  *state += mean_of_squares(s, row, gradient, width);
  const float scale = s.learning_rate / (__builtin_sqrtf(*state) + s.epsilon);
  for (std::size_t i = 0; i < width; ++i) {
    row[i] = fused(-scale, fused(row[i], s.weight_decay, gradient[i]), row[i]);
  }
}

// State: the number of steps, first moments, and second moments, of which there is one if they are row-wise. `step` is
// learning_rate / (1 - beta1^t), `root` is sqrt(1 - beta2^t).
void loop_adam(const OptimizerStep& s, float* __restrict row, float* __restrict state, const float* __restrict gradient,
               std::size_t width) {
  float* __restrict const first = state + 1;
  float* __restrict const second = first + width;
  for (std::size_t i = 0; i < width; ++i) {
    const float g = fused(row[i], s.weight_decay, gradient[i]);
    first[i] = fused(1 - s.beta1, g - first[i], first[i]);
    second[i] = fused((1 - s.beta2) * g, g, second[i] * s.beta2);
    row[i] -= s.step * (first[i] / (__builtin_sqrtf(second[i]) / s.root + s.epsilon));
  }
}

void loop_adam_row(const OptimizerStep& s, float* __restrict row, float* __restrict state,
                   const float* __restrict gradient, std::size_t width) {
  float* __restrict const first = state + 1;
  float& second = state[1 + width];
  second = fused(1 - s.beta2, mean_of_squares(s, row, gradient, width), second * s.beta2);
  const float scale = s.step / (__builtin_sqrtf(second) / s.root + s.epsilon);
  for (std::size_t i = 0; i < width; ++i) {
    const float g = fused(row[i], s.weight_decay, gradient[i]);
    first[i] = fused(1 - s.beta1, g - first[i], first[i]);
    row[i] = fused(-scale, first[i], row[i]);
  }
}

// State: z, then n, the sums of squares.
void loop_ftrl(const OptimizerStep& s, float* __restrict row, float* __restrict state, const float* __restrict gradient,
               std::size_t width) {
  float* __restrict const sums = state + width;
  for (std::size_t i = 0; i < width; ++i) {
    const float g = gradient[i];
    const float before = __builtin_sqrtf(sums[i]);
    sums[i] = fused(g, g, sums[i]);
    const float after = __builtin_sqrtf(sums[i]);
    const float z = state[i] + g - (after - before) / s.learning_rate * row[i];
    state[i] = z;
    const float shrunk = z > s.l1 ? z - s.l1 : z < -s.l1 ? z + s.l1 : 0.0f;
    row[i] = shrunk == 0 ? 0.0f : -shrunk / ((s.beta + after) / s.learning_rate + s.l2);
  }
}

}  // namespace

extern const OptimizerKernels HVD_OPTIMIZER_KERNELS = {
    .add = loop_add,
    .sgd = loop_sgd,
    .momentum = loop_momentum,
    .adagrad = loop_adagrad,
    .adagrad_row = loop_adagrad_row,
    .adam = loop_adam,
    .adam_row = loop_adam_row,
    .ftrl = loop_ftrl,
};

}  // namespace hvd
