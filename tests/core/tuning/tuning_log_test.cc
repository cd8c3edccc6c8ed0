#include "core/tuning/tuning_log.h"

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("A sample is a line of the log, in the units of its columns") {
  CHECK(tuning_log_header() == "sample,phase,chunk_bytes,step_ms,cycle_time_ms,tensor_fusion_threshold,score");
  const TuningSample sample{.number = 7,
                            .phase = TuningSample::Phase::search,
                            .knobs = {.fusion_threshold_bytes = 16 << 20, .coalescing_us = 50, .chunk_bytes = 131072},
                            .seconds_per_step = 0.0125,
                            .seconds_per_byte = 0.5e-9};
  CHECK(tuning_log_row(sample) == "7,search,131072,12.5,0.05,16,2000");
}
