#include "core/tuning/autotuner.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "core/tuning/comparison.h"

namespace hvd {

namespace {

const char* name_of(TuningSample::Phase phase) {
  switch (phase) {
    case TuningSample::Phase::warm_up: return "warm_up";
    case TuningSample::Phase::search: return "search";
    case TuningSample::Phase::comparison: return "comparison";
  }
  return "";
}

std::size_t place_in(const KnobRange& range, const Knobs& knobs) {
  const auto place = std::find(range.values.begin(), range.values.end(), knobs.*range.knob);
  if (place == range.values.end()) throw InvalidArgument("the values to try for a knob must include its default");
  return static_cast<std::size_t>(place - range.values.begin());
}

}  // namespace

std::string tuning_log_header() {
  return "sample,phase,chunk_bytes,step_ms,cycle_time_ms,tensor_fusion_threshold,score";
}

std::string tuning_log_row(const TuningSample& sample) {
  const Knobs& knobs = sample.knobs;
  char text[256];
  std::snprintf(text, sizeof text, "%d,%s,%" PRId64 ",%.6g,%.6g,%.6g,%.6g", sample.number, name_of(sample.phase),
                knobs.chunk_bytes, sample.seconds_per_step * 1e3, static_cast<double>(knobs.coalescing_us) / 1e3,
                static_cast<double>(knobs.fusion_threshold_bytes) / (1 << 20), 1e-6 / sample.seconds_per_byte);
  return text;
}

Autotuner::Autotuner(AutotunerOptions options)
    : options_(std::move(options)), knobs_(options_.defaults), best_(options_.defaults) {
  for (const KnobRange& range : options_.ranges) place_in(range, best_);
  if (options_.ranges.empty()) {
    finish(best_);
  } else if (options_.warmup_samples <= 0) {
    next_race();
  }
}

std::optional<TuningSample> Autotuner::step(std::int64_t bytes, Duration duration) {
  if (finished_ || bytes <= 0 || duration <= Duration::zero()) return std::nullopt;
  if (settling_) {
    settling_ = false;
    return std::nullopt;
  }
  durations_.push_back(seconds(duration));
  costs_.push_back(durations_.back() / static_cast<double>(bytes));
  if (static_cast<int>(costs_.size()) < options_.steps_per_sample) return std::nullopt;
  const TuningSample sample{.number = ++samples_,
                            .phase = phase_,
                            .knobs = knobs_,
                            .seconds_per_step = median(durations_),
                            .seconds_per_byte = median(costs_)};
  use_sample();
  durations_.clear();
  costs_.clear();
  settling_ = knobs_ != sample.knobs;
  return sample;
}

void Autotuner::use_sample() {
  switch (phase_) {
    case TuningSample::Phase::warm_up:
      if (samples_ >= options_.warmup_samples) next_race();
      return;
    case TuningSample::Phase::search:
      race_->took(costs_);
      race_->decided() ? end_race() : try_entrant();
      return;
    case TuningSample::Phase::comparison:
      comparison_.took(costs_);
      comparison_.verdict() ? finish(knobs_of(*comparison_.verdict())) : try_side();
      return;
  }
}

void Autotuner::next_race() {
  phase_ = TuningSample::Phase::search;
  const int left = std::max(0, options_.warmup_samples) + options_.max_samples - samples_;
  if (settled_ >= options_.ranges.size() || Race::samples(range().values.size()) > left) return end_search();
  race_.emplace(range().values.size(), place_in(range(), best_));
  try_entrant();
}

void Autotuner::end_race() {
  const std::int64_t winner = range().values[race_->winner()];
  std::int64_t& value = best_.*range().knob;
  settled_ = winner == value ? settled_ + 1 : 1;
  value = winner;
  turn_ = (turn_ + 1) % options_.ranges.size();
  next_race();
}

void Autotuner::try_entrant() {
  knobs_ = best_;
  knobs_.*range().knob = range().values[race_->next()];
}

void Autotuner::end_search() {
  if (best_ == options_.defaults) return finish(best_);
  phase_ = TuningSample::Phase::comparison;
  try_side();
}

void Autotuner::try_side() { knobs_ = knobs_of(comparison_.next()); }

const Knobs& Autotuner::knobs_of(Comparison::Side side) const {
  return side == Comparison::Side::challenger ? best_ : options_.defaults;
}

void Autotuner::finish(const Knobs& knobs) {
  knobs_ = knobs;
  finished_ = true;
}

}  // namespace hvd
