#include "core/config.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

Config config_of(const Environment& environment) { return read_config(environment).config; }

}  // namespace

TEST_CASE("an empty environment gives the defaults") {
  const ConfigResult result = read_config({});
  const Config& config = result.config;
  CHECK(result.warnings.empty());
  CHECK(config.job.rank == 0);
  CHECK(config.job.servers == 0);
  CHECK(config.job.server == -1);
  CHECK(config.job.size == 1);
  CHECK(config.job.store.empty());
  CHECK(config.job.key.empty());
  CHECK(config.timeouts.start == 30s);
  CHECK(config.timeouts.lease == 5s);
  CHECK(config.diagnosis.log_level == LogLevel::warning);
  CHECK(config.negotiation.join_divisor == JoinDivisor::all);
  CHECK(config.negotiation.fusion_threshold_bytes == kAutomaticThreshold);
  CHECK(config.negotiation.coalescing == 30us);
  CHECK_FALSE(config.autotune.enabled);
  CHECK(config.autotune.log.empty());
  CHECK(config.autotune.warmup_samples == 3);
  CHECK(config.autotune.steps_per_sample == 3);
  CHECK(config.autotune.max_samples == 24);
  CHECK(config.negotiation.cache_capacity == 1024);
  CHECK(config.timeouts.stall_check);
  CHECK(config.timeouts.stall_warning == 10s);
  CHECK(config.timeouts.stall_limit == Duration::zero());
  CHECK(config.timeouts.collective == 300s);
  CHECK(config.data_plane.deterministic);
  CHECK(config.data_plane.algorithm.empty());
  CHECK(config.data_plane.sockets_per_peer == 0);
  CHECK(config.data_plane.shared_memory);
  CHECK(config.data_plane.chunk_bytes == 256 << 10);
  CHECK(config.data_plane.instruction_set == "auto");
  CHECK(config.given.empty());
}

TEST_CASE("values are read") {
  const Config config = config_of({{"HVD_RANK", "3"},
                                   {"HVD_SIZE", "8"},
                                   {"HVD_STORE", "10.0.0.7:4711"},
                                   {"HVD_LOG_LEVEL", "DEBUG"},
                                   {"HVD_STALL_CHECK_DISABLE", "1"},
                                   {"HVD_STALL_CHECK_TIME_SECONDS", "0.5"},
                                   {"HVD_JOIN_DIVISOR", "contributing"},
                                   {"HVD_DETERMINISTIC", "0"},
                                   {"HVD_ALGORITHM", "allreduce:-=ring"},
                                   {"HVD_SOCKETS_PER_PEER", "4"},
                                   {"HVD_NETWORK_INTERFACES", "eth1,ib0"},
                                   {"HVD_SHARED_MEMORY", "off"},
                                   {"HVD_CHUNK_BYTES", "131072"},
                                   {"HVD_INSTRUCTION_SET", "scalar"},
                                   {"HVD_SERVERS", "2"},
                                   {"HVD_SERVER", "1"},
                                   {"HVD_SERVER_START", "3"}});
  CHECK(config.job.servers == 2);
  CHECK(config.job.server == 1);
  CHECK(config.job.rank == 3);
  CHECK(config.job.size == 8);
  CHECK(config.job.store == "10.0.0.7:4711");
  CHECK(config.diagnosis.log_level == LogLevel::debug);
  CHECK_FALSE(config.timeouts.stall_check);
  CHECK(config.timeouts.stall_warning == 500ms);
  CHECK(config.negotiation.join_divisor == JoinDivisor::contributing);
  CHECK_FALSE(config.data_plane.deterministic);
  CHECK(config.data_plane.algorithm == "allreduce:-=ring");
  CHECK(config.data_plane.sockets_per_peer == 4);
  CHECK(config.data_plane.network_interfaces == "eth1,ib0");
  CHECK_FALSE(config.data_plane.shared_memory);
  CHECK(config.data_plane.chunk_bytes == 131072);
  CHECK(config.data_plane.instruction_set == "scalar");
}

TEST_CASE("Horovod's names are read, and hvd's win") {
  CHECK(config_of({{"HOROVOD_FUSION_THRESHOLD", "1000"}}).negotiation.fusion_threshold_bytes == 1000);
  CHECK(config_of({{"HOROVOD_CPU_OPERATIONS", "gloo"}}).data_plane.cpu_backend == CpuBackend::host);
  CHECK(config_of({{"HOROVOD_CPU_OPERATIONS", "CCL"}}).data_plane.cpu_backend == CpuBackend::host);
  CHECK(config_of({{"HOROVOD_CPU_OPERATIONS", "MPI"}}).data_plane.cpu_backend == CpuBackend::mpi);
  CHECK(config_of({{"HOROVOD_GLOO_TIMEOUT_SECONDS", "7"}}).timeouts.collective == 7s);
  CHECK(config_of({{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}}).job.rank == 1);
  CHECK(config_of({{"HOROVOD_FUSION_THRESHOLD", "1000"}, {"HVD_FUSION_THRESHOLD", "2000"}})
            .negotiation.fusion_threshold_bytes == 2000);
  CHECK(config_of({{"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "20"}}).autotune.max_samples == 20);
  // A value that is not used is not judged either.
  CHECK(config_of({{"HOROVOD_FUSION_THRESHOLD", "nonsense"}, {"HVD_FUSION_THRESHOLD", "2000"}})
            .negotiation.fusion_threshold_bytes == 2000);
}

TEST_CASE("A silent peer is given up at the stall limit, if one is set") {
  CHECK(config_of({}).timeouts.silence_limit() == 300s);
  CHECK(config_of({}).timeouts.silence_limit(3) == 300s);
  CHECK_FALSE(config_of({}).timeouts.gives_up_stalls());
  const Environment limit{{"HVD_STALL_SHUTDOWN_TIME_SECONDS", "60"}};
  CHECK(config_of(limit).timeouts.gives_up_stalls());
  CHECK(config_of(limit).timeouts.silence_limit() == 60s);
  CHECK(config_of(limit).timeouts.silence_limit(2) == 80s);
  CHECK(config_of({{"HVD_STALL_SHUTDOWN_TIME_SECONDS", "600"}}).timeouts.silence_limit(2) == 300s);
  CHECK(config_of({{"HVD_STALL_SHUTDOWN_TIME_SECONDS", "290"}}).timeouts.silence_limit(2) == 300s);
  CHECK(config_of({{"HVD_STALL_SHUTDOWN_TIME_SECONDS", "0.1"}}).timeouts.silence_limit() == 2s);
  CHECK(config_of({{"HVD_STALL_SHUTDOWN_TIME_SECONDS", "0.1"}, {"HVD_COLLECTIVE_TIMEOUT_SECONDS", "0.5"}})
            .timeouts.silence_limit() == 500ms);
  CHECK(config_of({{"HVD_STALL_SHUTDOWN_TIME_SECONDS", "60"}, {"HVD_STALL_CHECK_DISABLE", "1"}})
            .timeouts.silence_limit() == 300s);
}

TEST_CASE("what the environment gives is known by hvd's name, be it the default's value or not") {
  const Config config = config_of({{"HOROVOD_FUSION_THRESHOLD", "67108864"}, {"HVD_AUTOTUNE", "1"}, {"PATH", "/bin"}});
  CHECK(config.given == std::set<std::string, std::less<>>{"HVD_AUTOTUNE", "HVD_FUSION_THRESHOLD"});
  CHECK(config.autotune.enabled);
}

TEST_CASE("a bad value is refused with its variable, itself and what is allowed") {
  struct Case {
    std::string name, value, allowed;
  };
  const std::vector<Case> cases{
      {"HVD_RANK", "-1", "from 0"},
      {"HVD_RANK", "", "whole number"},
      {"HVD_RANK", "1x", "whole number"},
      {"HVD_SIZE", "0", "from 1"},
      {"HVD_SIZE", "99999999999999999999", "whole number"},
      {"HVD_SERVER", "-2", "a server's number"},
      {"HVD_FUSION_THRESHOLD", "64MB", "bytes"},
      {"HVD_FUSION_THRESHOLD", "-5", "bytes"},
      {"HVD_START_TIMEOUT", "soon", "seconds"},
      {"HVD_START_TIMEOUT", "nan", "seconds"},
      {"HVD_START_TIMEOUT", "inf", "seconds"},
      {"HVD_START_TIMEOUT", "-1", "seconds"},
      {"HVD_SOCKETS_PER_PEER", "65", "a whole number from 0 to 64"},
      {"HVD_JOIN_DIVISOR", "some", "all or contributing"},
      {"HVD_SHARED_MEMORY", "maybe", "0 or 1"},
      {"HVD_CYCLE_TIME", "-1", "milliseconds"},
      {"HVD_CHUNK_BYTES", "5000", "multiple of 4096"},
      {"HVD_CHUNK_BYTES", "0", "multiple of 4096"},
      {"HVD_AUTOTUNE_STEPS_PER_SAMPLE", "0", "from 1"},
      {"HVD_LOG_LEVEL", "loud", "expected one of trace"},
      {"HOROVOD_CACHE_CAPACITY", "many", "whole number"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name, c.value);
    try {
      config_of({{c.name, c.value}});
      FAIL_CHECK("accepted");
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      CHECK(message.find(c.name + "='" + c.value + "'") == 0);
      CHECK(message.find(c.allowed) != std::string::npos);
    }
  }
}

TEST_CASE("a rank beyond the size is refused, as is a server beyond their number") {
  CHECK_THROWS_WITH(config_of({{"HVD_RANK", "2"}, {"HVD_SIZE", "2"}}), "HVD_RANK=2 is not below HVD_SIZE=2");
  CHECK_THROWS_WITH(config_of({{"HVD_SERVER", "0"}}), "HVD_SERVER=0 is not below HVD_SERVERS=0");
}

TEST_CASE("an unknown name is answered with the nearest known one") {
  const ConfigResult result = read_config({{"HVD_FUSION_TRESHOLD", "1"},
                                           {"HVD_LOGLEVEL", "debug"},
                                           {"HOROVOD_SOMETHING_ELSE", "1"},  // not ours to judge
                                           {"PATH", "/bin"}});
  CHECK(result.warnings == std::vector<std::string>{
                               "unknown environment variable HVD_FUSION_TRESHOLD (did you mean HVD_FUSION_THRESHOLD?)",
                               "unknown environment variable HVD_LOGLEVEL (did you mean HVD_LOG_LEVEL?)"});
}

TEST_CASE("the documentation lists every knob with its default") {
  const std::string text = environment_documentation();
  CHECK(text.find("| `HVD_FUSION_THRESHOLD` | `HOROVOD_FUSION_THRESHOLD` | `auto` |") != std::string::npos);
  CHECK(text.find("| `HVD_CHUNK_BYTES` |") != std::string::npos);
}

TEST_CASE("the process's environment is copied") {
  setenv("HVD_TEST_OF_ENVIRONMENT", "a=b", 1);
  CHECK(process_environment().at("HVD_TEST_OF_ENVIRONMENT") == "a=b");
  unsetenv("HVD_TEST_OF_ENVIRONMENT");
  CHECK_FALSE(process_environment().contains("HVD_TEST_OF_ENVIRONMENT"));
}

TEST_CASE("a lease is at least as long as the kernel can time it") {
  CHECK(config_of({{"HVD_LEASE", "1.5"}}).timeouts.lease == 1500ms);
  const std::string wrong = GENERATE("0", "0.5", "-1", "nan", "4000", "soon");
  CHECK_THROWS_WITH(config_of({{"HVD_LEASE", wrong}}),
                    "HVD_LEASE='" + wrong + "': expected a number of seconds from 1 to 3600");
}
