#include "launcher/guardian.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "core/net/random_bytes.h"
#include "launcher/process_tree.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

// A process that sleeps for a minute, with nothing but these variables.
pid_t start_sleeper(const std::string& variable, bool as_daemon) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  if (const pid_t child = fork(); child == 0) {
    if (as_daemon) {
      setsid();
      if (fork() != 0) _exit(0);
    }
    const pid_t self = getpid();
    if (write(ends[1], &self, sizeof self) != sizeof self) _exit(1);
    close(ends[0]);
    close(ends[1]);
    execle("/bin/sleep", "sleep", "60", nullptr, std::array<const char*, 3>{"A=1", variable.c_str(), nullptr}.data());
    _exit(1);
  } else if (as_daemon) {
    waitpid(child, nullptr, 0);
  }
  pid_t pid = -1;
  if (read(ends[0], &pid, sizeof pid) != sizeof pid) pid = -1;
  close(ends[0]);
  close(ends[1]);
  return pid;
}

bool has_begun(pid_t pid) {  // its own program, that is
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  return std::string(std::istreambuf_iterator<char>(file), {}).starts_with("sleep");
}

struct Pids {
  pid_t guardian, plain, daemon, stopped, unmarked;
};

// A stand-in for hvdrun, with a job of three processes; one that does not belong to it is a child of the stand-in, too.
// This process is the subreaper of all.
class StandIn {
 public:
  StandIn(std::optional<Duration> lease, const std::function<void(Guardian&)>& then) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::array<std::byte, 8> bytes;
    fill_random(bytes);
    mark_ += to_hex(bytes);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      {
        Guardian guardian;
        guardian.guard(mark_, lease);
        pids_ = {.guardian = guardian.pid(),
                 .plain = start_sleeper(mark_, false),
                 .daemon = start_sleeper(mark_, true),
                 .stopped = start_sleeper(mark_, false),
                 .unmarked = start_sleeper(mark_ + "0", false)};
        while (!has_begun(pids_.stopped) || !has_begun(pids_.daemon)) {
        }
        kill(pids_.stopped, SIGSTOP);
        const std::array<Pids, 1> message{pids_};
        if (write(ends[1], message.data(), sizeof message) != sizeof message) _exit(1);
        close(ends[1]);
        then(guardian);
      }
      _exit(0);
    }
    close(ends[1]);
    REQUIRE(read(ends[0], &pids_, sizeof pids_) == sizeof pids_);
    close(ends[0]);
  }
  ~StandIn() {
    for (const pid_t pid : {pid_, pids_.guardian, pids_.plain, pids_.daemon, pids_.stopped, pids_.unmarked}) {
      if (runs(pid)) kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  pid_t pid() const { return pid_; }
  const Pids& pids() const { return pids_; }
  const std::string& mark() const { return mark_; }

  static bool runs(pid_t pid) {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 ? info.si_pid == 0
                                                                                          : kill(pid, 0) == 0;
  }

  // Whether all of the job, and the guardian, have ended within the time.
  bool job_ends_within(Duration time) const {
    for (const Deadline deadline = deadline_after(time); Clock::now() < deadline; poll(nullptr, 0, 2)) {
      bool any = false;
      for (const pid_t pid : {pids_.plain, pids_.daemon, pids_.stopped, pids_.guardian}) any = any || runs(pid);
      if (!any) return true;
    }
    return false;
  }
  bool job_lives() const { return runs(pids_.plain) && runs(pids_.daemon) && runs(pids_.stopped); }

 private:
  std::string mark_ = "HVD_TEST_MARK=";
  pid_t pid_ = -1;
  Pids pids_{};
};

std::string text_of(pid_t pid, const std::string& file) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/" + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void sleep_on(Guardian&) { pause(); }

TEST_CASE("a killed hvdrun leaves nothing of its job, and nobody else is hit") {
  StandIn hvdrun(std::nullopt, sleep_on);
  CHECK(hvdrun.job_lives());
  kill(hvdrun.pid(), SIGKILL);
  CHECK(hvdrun.job_ends_within(1s));
  CHECK(StandIn::runs(hvdrun.pids().unmarked));
}

TEST_CASE("a guardian is somebody else's child, in a session of its own, and shows nothing") {
  StandIn hvdrun(std::nullopt, sleep_on);
  const pid_t guardian = hvdrun.pids().guardian;
  while (text_of(guardian, "comm") != "hvd-guardian\n" || text_of(guardian, "environ").find('=') != std::string::npos) {
    poll(nullptr, 0, 2);
  }
  CHECK(parse_process_stat(text_of(guardian, "stat"))->parent == getpid());  // the subreaper, here
  CHECK(getsid(guardian) != getsid(hvdrun.pid()));
  CHECK(text_of(guardian, "cmdline").starts_with("hvd-guardian"));
  CHECK(text_of(guardian, "environ").find(hvdrun.mark()) == std::string::npos);
  CHECK(text_of(guardian, "cmdline").find(hvdrun.mark()) == std::string::npos);
}

TEST_CASE("a dismissed guardian ends and touches nothing") {
  StandIn hvdrun(300ms, [](Guardian&) {});
  waitpid(hvdrun.pid(), nullptr, 0);
  while (StandIn::runs(hvdrun.pids().guardian)) poll(nullptr, 0, 2);
  CHECK(hvdrun.job_lives());
}

TEST_CASE("a stopped hvdrun ends with its job when the lease is over") {
  StandIn hvdrun(300ms, [](Guardian& guardian) {
    guardian.tick();
    raise(SIGSTOP);
  });
  CHECK(hvdrun.job_ends_within(2s));
  CHECK_FALSE(StandIn::runs(hvdrun.pid()));
  CHECK(StandIn::runs(hvdrun.pids().unmarked));
}

TEST_CASE("a hvdrun that ticks lives on") {
  StandIn hvdrun(300ms, [](Guardian& guardian) {
    for (;;) {
      guardian.tick();
      poll(nullptr, 0, 20);
    }
  });
  CHECK_FALSE(hvdrun.job_ends_within(1s));
  CHECK(hvdrun.job_lives());
  CHECK(StandIn::runs(hvdrun.pid()));
  kill(hvdrun.pid(), SIGKILL);
  CHECK(hvdrun.job_ends_within(1s));
}

TEST_CASE("a guardian that knows no mark just ends") {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t child = fork();
  if (child == 0) {
    const Guardian guardian;
    raise(SIGKILL);
  }
  CHECK(waitpid(child, nullptr, 0) == child);
  CHECK(wait(nullptr) > 0);  // the guardian, an orphan
}

}  // namespace
}  // namespace hvd::launcher
