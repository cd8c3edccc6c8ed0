#include "core/tuning/autotuner.h"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr std::size_t kTried = 4;  // values of a knob: a race among them takes six samples

struct Spread {
  std::int64_t Knobs::*knob;
  std::array<int, kTried> shifts;
  std::int64_t from_zero;  // the smallest nonzero value if the default is zero
  std::int64_t granule;
};

// Larger chunks fall out of the L2 cache and cost much more than they can gain: one step upwards is enough.
const Spread kSpreads[] = {
    {&Knobs::fusion_threshold_bytes, {-4, -2, 0, 2}, 1 << 20, 1},
    {&Knobs::coalescing_us, {-2, -1, 0, 1}, 32, 1},
    {&Knobs::chunk_bytes, {-2, -1, 0, 1}, 64 << 10, 4096},
};

std::int64_t shifted(std::int64_t value, int shift) { return shift < 0 ? value >> -shift : value << shift; }

constexpr double kMinGain = 0.01;  // of a comparison

constexpr const char* kPhaseNames[] = {"warm_up", "search", "comparison"};  // by TuningSample::Phase

std::size_t place_in(const KnobRange& range, const Knobs& knobs) {
  const auto place = std::find(range.values.begin(), range.values.end(), knobs.*range.knob);
  if (place == range.values.end()) throw InvalidArgument("the values to try for a knob must include its default");
  return static_cast<std::size_t>(place - range.values.begin());
}

}  // namespace

KnobRange range_around(std::int64_t Knobs::*knob, const Knobs& defaults) {
  const Spread& spread = *std::find_if(std::begin(kSpreads), std::end(kSpreads),
                                       [&](const Spread& candidate) { return candidate.knob == knob; });
  const std::int64_t middle = defaults.*knob;
  KnobRange range{knob, {middle}};
  for (std::size_t i = 0; i < kTried; ++i) {
    if (middle == 0) {
      if (i > 0) range.values.push_back(shifted(spread.from_zero, static_cast<int>(i) - 1));
    } else {
      const std::int64_t value = shifted(middle, spread.shifts[i]) / spread.granule * spread.granule;
      if (value > 0) range.values.push_back(value);
    }
  }
  std::sort(range.values.begin(), range.values.end());
  range.values.erase(std::unique(range.values.begin(), range.values.end()), range.values.end());
  return range;
}

// ---- Comparing

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
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
  return median(of(Side::challenger).steps) <= incumbent - std::max(noise, kMinGain * incumbent);
}

// ---- The autotuner

std::string tuning_log_header() {
  return "sample,phase,chunk_bytes,step_ms,cycle_time_ms,tensor_fusion_threshold,score";
}

std::string tuning_log_row(const TuningSample& sample) {
  const Knobs& knobs = sample.knobs;
  char text[256];
  std::snprintf(text, sizeof text, "%d,%s,%" PRId64 ",%.6g,%.6g,%.6g,%.6g", sample.number,
                kPhaseNames[static_cast<std::size_t>(sample.phase)], knobs.chunk_bytes, sample.seconds_per_step * 1e3,
                static_cast<double>(knobs.coalescing_us) / 1e3,
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

// ---- The tuner

namespace {

AutotunerOptions autotuner_options(const Config& config) {
  AutotunerOptions options{.defaults = knobs_of(config),
                           .warmup_samples = config.autotune.warmup_samples,
                           .steps_per_sample = config.autotune.steps_per_sample,
                           .max_samples = config.autotune.max_samples};
  const auto tune = [&](const char* variable, std::int64_t Knobs::*knob,
                        std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    if (config.given.contains(variable)) return;
    KnobRange range = range_around(knob, options.defaults);
    std::erase_if(range.values, [most](std::int64_t value) { return value > most; });
    options.ranges.push_back(std::move(range));
  };
  tune("HVD_FUSION_THRESHOLD", &Knobs::fusion_threshold_bytes);
  tune("HVD_CYCLE_TIME", &Knobs::coalescing_us);
  // The windows have no room for larger chunks.
  if (config.data_plane.shared_memory) tune("HVD_CHUNK_BYTES", &Knobs::chunk_bytes, config.data_plane.chunk_bytes);
  return options;
}

}  // namespace

Tuner::Tuner(const Config& config, const Log& log) : log_(log), autotuner_(autotuner_options(config)) {
  if (config.autotune.log.empty()) return;
  file_.open(config.autotune.log);
  write(tuning_log_header());
}

std::optional<Knobs> Tuner::performed(const OperationSpec& spec, TimePoint now) {
  if (finished() || spec.collective != Collective::allreduce) return std::nullopt;
  const auto step = steps_.performed(spec.name, bytes_of(spec), now);
  if (!step) return std::nullopt;
  const Knobs before = autotuner_.knobs();
  if (const auto sample = autotuner_.step(step->bytes, step->duration)) {
    if (file_.is_open()) write(tuning_log_row(*sample));
  }
  if (finished()) {
    const Knobs& kept = autotuner_.knobs();
    log_.info("autotuning has ended: fusion threshold " + std::to_string(kept.fusion_threshold_bytes) +
              " bytes, coalescing " + std::to_string(kept.coalescing_us) + " us, chunks of " +
              std::to_string(kept.chunk_bytes) + " bytes");
  }
  return autotuner_.knobs() == before ? std::nullopt : std::optional(autotuner_.knobs());
}

// A failure to write the log must not end a job.
void Tuner::write(const std::string& line) {
  file_ << line << '\n' << std::flush;
  if (file_) return;
  log_.warning("HVD_AUTOTUNE_LOG cannot be written; tuning goes on without it");
  file_.close();
}

}  // namespace hvd
