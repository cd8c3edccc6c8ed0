#include "core/engine/tuner.h"

#include <limits>
#include <utility>

#include "core/tuning/autotuner.h"

namespace hvd {

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

Knobs knobs_of(const Config& config) {
  return {.fusion_threshold_bytes = config.negotiation.fusion_threshold_bytes,
          .coalescing_us = std::chrono::duration_cast<std::chrono::microseconds>(config.negotiation.coalescing).count(),
          .chunk_bytes = config.data_plane.chunk_bytes};
}

Tuner::Tuner(const Config& config, const Log& log) : log_(log), autotuner_(autotuner_options(config)) {
  if (config.autotune.log.empty()) return;
  file_.open(config.autotune.log);
  write(tuning_log_header());
}

std::optional<Knobs> Tuner::performed(const Response& response, TimePoint now) {
  if (finished() || response.spec.collective != Collective::allreduce) return std::nullopt;
  const auto step = steps_.performed(response.spec.name, bytes_of(response.spec), now);
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
