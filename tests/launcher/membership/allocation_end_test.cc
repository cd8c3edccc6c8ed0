#include "launcher/membership/allocation_end.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "launcher/processes/event_loop.h"
#include "tests/launcher/membership/ended_children.h"
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

namespace {

// A squeue that prints these answers about job 7, one in each run; first in the PATH during the object's life.
class FakeSqueue {
 public:
  explicit FakeSqueue(const std::vector<std::string>& answers) {
    std::filesystem::create_directory(folder_);
    std::ofstream program(folder_ + "/squeue");
    program << "#!/bin/sh\n[ \"$*\" = '--noheader --jobs=7 --format=%L' ] || exit\n"
            << "cd " << folder_ << "; echo >> runs; exec sed -n \"$(wc -l < runs)p\" answers\n";
    std::ofstream list(folder_ + "/answers");
    for (const std::string& answer : answers) list << answer << "\n";
    chmod((folder_ + "/squeue").c_str(), 0755);
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
    setenv("SLURM_JOB_ID", "7", 1);
  }
  ~FakeSqueue() {
    setenv("PATH", path_.c_str(), 1);
    unsetenv("SLURM_JOB_ID");
    std::filesystem::remove_all(folder_);
  }

 private:
  const std::string folder_ = "/tmp/hvd-squeue-" + std::to_string(getpid());
  const std::string path_ = getenv("PATH");
};

}  // namespace

TEST_CASE("the end of an allocation is asked for again and again, and what keeps it from being known is told once") {
  using Texts = std::vector<std::string>;
  const auto [by_variable, answers, expected] = GENERATE(table<int, Texts, Texts>({
      {0, {"10:00", "9:50", "UNLIMITED", "20:00", "2:00"}, {"540", "changed never", "changed 1140", "changed 60"}},
      {0, {"UNLIMITED", "10:00"}, {"changed 540"}},
      {600, {"squeue: error: no controller", "9:59", "30:00"}, {"540", "changed 1740"}},
      {0, {"squeue: error: no controller", "what", "10:00"}, {"no controller", "changed 540"}},
  }));
  const FakeSqueue squeue(answers);
  Environment environment;
  const auto today = std::chrono::system_clock::now().time_since_epoch() / 1s;
  if (by_variable > 0) environment["SLURM_JOB_END_TIME"] = std::to_string(today + by_variable);
  Texts heard;
  const auto on_known = [&](std::optional<TimePoint> limit, bool has_changed) {
    const auto tens = limit ? std::lround(seconds(*limit - Clock::now()) / 10) : 0;
    heard.push_back((has_changed ? "changed " : "") + (limit ? std::to_string(10 * tens) : std::string("never")));
  };
  const auto warn = [&](const std::string& line) {
    const bool names_cause = line.find("(squeue: error: no controller)") != std::string::npos;
    heard.push_back(names_cause ? "no controller" : line);
  };
  SignalSource signals;
  EventLoop loop;
  AllocationEnd allocation(loop, signals, environment, 60s, 1ms, {.known = on_known, .warning = warn});
  std::size_t runs = 0;
  run_until(
      loop, signals, [&] { return runs > answers.size(); },
      [&](pid_t pid, ExitStatus status) {
        allocation.child_ended(pid, status);
        ++runs;
      });
  CHECK(heard == expected);
}
