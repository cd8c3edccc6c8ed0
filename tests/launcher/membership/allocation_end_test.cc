#include "launcher/membership/allocation_end.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <tuple>

#include "launcher/processes/event_loop.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("what squeue says of the time that is left") {
  const auto [text, left] = GENERATE(table<const char*, std::optional<Duration>>({
      {"0", 0s},
      {"9:59", 599s},
      {"02:03:04", 7384s},
      {"1-02:03:04", 93784s},
      {"365-00:00:00", 8760h},
      {"UNLIMITED", std::nullopt},
      {"NOT_SET", std::nullopt},
      {"INVALID", std::nullopt},
      {"", std::nullopt},
      {"1:2:3:4", std::nullopt},
      {"1-2-03:04:05", std::nullopt},
      {"slurm_load_jobs error: Invalid job id specified", std::nullopt},
  }));
  CAPTURE(text);
  CHECK(parse_time_left(text) == left);
}

TEST_CASE("what Slurm's variable says of the time that is left") {
  CHECK(time_left_in({{"SLURM_JOB_END_TIME", "1700000060"}}, 1.7e9) == 60s);
  CHECK(time_left_in({{"SLURM_JOB_END_TIME", "1600000000"}}, 1.7e9) == 0s);
  for (const char* const text : {"", "soon", "17x", "0", "-5", "nan"}) {
    CAPTURE(text);
    CHECK(time_left_in({{"SLURM_JOB_END_TIME", text}}, 1.7e9) == std::nullopt);
  }
  CHECK(time_left_in({}, 1.7e9) == std::nullopt);
}

TEST_CASE("a job in a short allocation uses half of it") {
  CHECK(margin_within(60s, 600s) == 60s);
  CHECK(margin_within(60s, 40s) == 20s);
}

TEST_CASE("the end of an allocation is asked for, and what keeps it from being known is told") {
  const std::string folder = "/tmp/hvd-squeue-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const std::string program = folder + "/squeue";
  const SignalSource signals;
  std::vector<std::string> told;
  const auto ask = [&](const std::string& script, Environment environment) {
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    chmod(program.c_str(), 0755);
    environment["PATH"] = folder + ":/usr/bin:/bin";
    told.clear();
    const auto limit = time_limit_of(environment, 60s, signals, [&](const std::string& line) { told.push_back(line); });
    return limit ? std::optional(std::chrono::round<std::chrono::seconds>(*limit - Clock::now())) : std::nullopt;
  };
  const Environment in_job = {{"SLURM_JOB_ID", "7"}};
  CHECK(ask("echo 10:00", {}) == std::nullopt);
  CHECK(ask("[ \"$*\" = '--noheader --jobs=7 --format=%L' ] && echo 10:00", in_job) == 540s);
  CHECK(ask("echo UNLIMITED", in_job) == std::nullopt);
  CHECK(told.empty());
  const auto then = std::chrono::system_clock::now().time_since_epoch() / 1s + 600;
  const auto by_variable = ask("echo 20:00", {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_END_TIME", std::to_string(then)}});
  CHECK((by_variable >= 539s && by_variable <= 540s));  // it counts whole seconds
  CHECK(told.empty());
  CHECK(ask("echo squeue: error: no controller >&2; exit 1", in_job) == std::nullopt);
  REQUIRE(told.size() == 1);
  CHECK(told.front().find("does not tell when the allocation ends (squeue: error: no controller)") !=
        std::string::npos);
  std::filesystem::remove_all(folder);
}
