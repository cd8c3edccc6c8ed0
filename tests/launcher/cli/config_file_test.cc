
#include "core/base/error.h"
#include "launcher/cli/command_line.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Words = std::vector<std::string>;

const char* const kWhole = R"(# everything that Horovod reads
controller: mpi
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
  cache_capacity: 2048
  hierarchical_allreduce: true
  hierarchical_allgather: No
  torus_allreduce: off
autotune: {enabled: yes, log_file: "a log.csv", warmup_samples: 5, steps_per_sample: 20, bayes_opt_max_samples: 50,
           gaussian_process_noise: 0.9}
timeline:
  filename: 't.json'
  mark_cycles: True
stall_check:
  enabled: false
  warning_time_seconds: 120
  shutdown_time_seconds: 240
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 1
  gloo_timeout_seconds: 60
logging:
  level: INFO
  with_timestamp: false
)";

TEST_CASE("each key of the file is an option of horovodrun") {
  const ConfigOptions config = read_config(kWhole, true, "c.yaml");
  CHECK(config.options == Words{"--mpi",
                                "--fusion-threshold-mb=32",
                                "--cycle-time-ms=2.5",
                                "--cache-capacity=2048",
                                "--hierarchical-allreduce",
                                "--no-hierarchical-allgather",
                                "--no-torus-allreduce",
                                "--autotune",
                                "--autotune-log-file=a log.csv",
                                "--autotune-warmup-samples=5",
                                "--autotune-steps-per-sample=20",
                                "--autotune-bayes-opt-max-samples=50",
                                "--autotune-gaussian-process-noise=0.9",
                                "--timeline-filename=t.json",
                                "--timeline-mark-cycles",
                                "--no-stall-check",
                                "--stall-check-warning-time-seconds=120",
                                "--stall-check-shutdown-time-seconds=240",
                                "--mpi-threads-disable",
                                "--num-nccl-streams=2",
                                "--thread-affinity=1",
                                "--gloo-timeout-seconds=60",
                                "--log-level=INFO",
                                "--log-without-timestamp"});
  CHECK(config.unknown_keys.empty());
  Words line = read_config(kWhole, false, "c.yaml").options;
  CHECK(line.front() == "--fusion-threshold-mb=32");
  line.insert(line.end(), {"--cycle-time-ms", "7", "ls"});
  const Words exports = parse_command_line(line).exports;
  CHECK(exports.front() == "HVD_FUSION_THRESHOLD=33554432");
  CHECK(exports.back() == "HVD_CYCLE_TIME=7");  // the last counts
}

TEST_CASE("what has no value or no meaning is left out") {
  for (const char* text : {"", "# nothing", "---", "~", "params:", "params: {cycle_time_ms: ~}", "params: {}",
                           "params: {cycle_time_ms: null}", "params: {cycle_time_ms: Null}", "NULL"}) {
    INFO(text);
    const ConfigOptions config = read_config(text, true, "c.yaml");
    CHECK(config.options.empty());
    CHECK(config.unknown_keys.empty());
  }
  const ConfigOptions config = read_config("verbose: true\nparams: {fusion_treshold_mb: 3}", true, "c.yaml");
  CHECK(config.options.empty());
  CHECK(config.unknown_keys == Words{"verbose", "params.fusion_treshold_mb"});
}

TEST_CASE("a file that makes no sense is an error that says where") {
  struct Row {
    std::string text, message;
  };
  const Row rows[] = {
      {"controller: smoke", "c.yaml: controller: smoke is neither mpi nor gloo"},
      {"just words", "c.yaml, line 1: the file must have sections"},
      {"- a\n- b", "c.yaml, line 1: the file must have sections"},
      {"params: [", "c.yaml, line 1: params must be one value"},
      {"params:\n  cycle_time_ms: {a: 1}", "c.yaml, line 2: params.cycle_time_ms must be one value"},
      {"params:\n  ? [a]\n  : 1", "c.yaml, line 2: a key must be a word"},
      {"autotune: {enabled: perhaps}", "c.yaml: autotune.enabled: perhaps is neither true nor false"},
      {"a: b: c", "c.yaml, line 1: "},
      {"params: {cycle_time_ms: 1", "c.yaml, line "},
      {"params: *other", "c.yaml, line 1: params must be one value"},
      {std::string("\xff\xfe\x00", 3), "c.yaml, line 1: "},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    try {
      read_config(row.text, true, "c.yaml");
      FAIL("no error");
    } catch (const InvalidArgument& error) {
      CHECK(std::string(error.what()).starts_with(row.message));
    }
  }
}

}  // namespace
}  // namespace hvd::launcher
