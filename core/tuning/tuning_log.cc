#include "core/tuning/tuning_log.h"

#include <cinttypes>
#include <cstdio>

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

}  // namespace hvd
