// A job without ranks: how long a step takes follows from the knobs by a formula, with noise from a seeded generator.
#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "core/tuning/autotuner.h"

namespace hvd {

inline const Knobs kDefaults{.fusion_threshold_bytes = 64 << 20, .coalescing_us = 0, .chunk_bytes = 256 << 10};

// Seconds of a step without noise.
using Landscape = std::function<double(const Knobs&)>;

struct Noise {
  double amplitude = 0;     // a step takes up to so much more or less of its time,
  double outlier_odds = 0;  // and now and then five times as long
};

class SimulatedJob {
 public:
  SimulatedJob(Landscape landscape, Noise noise, unsigned seed)
      : landscape_(std::move(landscape)), noise_(noise), random_(seed) {}

  Duration step(const Knobs& knobs) {
    double taken = landscape_(knobs) * (1 + noise_.amplitude * (2 * uniform() - 1));
    if (uniform() < noise_.outlier_odds) taken *= 5;
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(taken));
  }

 private:
  // From 0 to 1, the same with every standard library.
  double uniform() { return static_cast<double>(random_()) / static_cast<double>(std::mt19937::max()); }

  Landscape landscape_;
  Noise noise_;
  std::mt19937 random_;
};

struct Tuned {
  Knobs knobs;
  int steps = 0;
  std::vector<TuningSample> samples;
};

inline constexpr std::int64_t kStepBytes = 100 << 20;

// Trains until the autotuner has finished.
inline Tuned tune(const AutotunerOptions& options, SimulatedJob job) {
  Autotuner autotuner(options);
  Tuned tuned;
  for (; !autotuner.finished() && tuned.steps < 10'000; ++tuned.steps) {
    if (auto sample = autotuner.step(kStepBytes, job.step(autotuner.knobs()))) tuned.samples.push_back(*sample);
  }
  tuned.knobs = autotuner.knobs();
  return tuned;
}

// How many factors of two lie between two values.
inline double octaves(std::int64_t a, std::int64_t b) {
  return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

}  // namespace hvd
