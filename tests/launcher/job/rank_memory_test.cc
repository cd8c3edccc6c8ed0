// A rank, here a child of the test, and what is read of it from outside.
#include "launcher/job/rank_memory.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "core/flight/flight_recorder.h"
#include "tests/launcher/written_stack.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

void announce(int signal, pid_t pid) {
  const std::string line = "hvd-stacks 1 " + std::to_string(signal) + " " + std::to_string(pid) + " /a folder/hvd\n";
  static_cast<void>(pwrite(stacks_file, line.data(), line.size(), 0));
}

// A process in a group of its own, that has done `begin` and then waits.
class Rank {
 public:
  Rank(const RankMemory& memory, const std::function<void()>& begin) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      stacks_file = memory.descriptors()[1];
      begin();
      static_cast<void>(write(ready[1], "!", 1));
      for (;;) pause();
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Rank() { end(); }

  pid_t pid() const { return pid_; }
  void signal(int number, int options) const {
    kill(pid_, number);
    int status = 0;
    CHECK(waitpid(pid_, &status, options) == pid_);
  }
  void end() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

bool wait_for_answer(RankMemory& memory) {
  for (const Deadline deadline = deadline_after(10s); Clock::now() < deadline; std::this_thread::sleep_for(10ms)) {
    if (memory.answer_is_complete()) return true;
  }
  return false;
}

TEST_CASE("a rank's memory is for one child, which finds it by its environment") {
  const RankMemory memory;
  const auto variables = memory.variables();
  REQUIRE(variables.size() == 2);
  CHECK(variables[0] ==
        std::pair<std::string, std::string>("HVD_FLIGHT_RECORDER", std::to_string(memory.descriptors()[0])));
  CHECK(variables[1] ==
        std::pair<std::string, std::string>("HVD_FLIGHT_STACKS", std::to_string(memory.descriptors()[1])));
  for (const int fd : memory.descriptors()) CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a process that has announced it writes its stacks when it is asked, each time anew") {
  RankMemory memory;
  Rank rank(memory, [] {
    std::signal(SIGRTMAX - 3, write_stack);
    announce(SIGRTMAX - 3, getpid());
  });
  for (int time = 0; time < 3; ++time) {
    REQUIRE(memory.ask_for_stacks(rank.pid()));
    REQUIRE(wait_for_answer(memory));
    CHECK(memory.answer().text ==
          "Current thread 0x1 (most recent call first):\n  File \"train.py\", line 48 in load\n");
    CHECK(memory.answer().package == "/a folder/hvd");
  }
  CHECK(memory.status(true, rank.pid(), Clock::now()).frame == PythonFrame{"train.py", 48, "load"});
  CHECK_FALSE(memory.status(false, rank.pid(), Clock::now()).frame);
}

TEST_CASE("nobody is harmed by being asked") {
  RankMemory memory;
  Rank silent(memory, [] {});
  CHECK_FALSE(memory.ask_for_stacks(silent.pid()));
  stacks_file = memory.descriptors()[1];
  announce(SIGRTMAX - 3, silent.pid());  // but it does not catch it
  CHECK_FALSE(memory.ask_for_stacks(silent.pid()));
  announce(SIGKILL, silent.pid());
  CHECK_FALSE(memory.ask_for_stacks(silent.pid()));
  announce(SIGRTMAX - 3, getpid());  // of another group
  CHECK_FALSE(memory.ask_for_stacks(silent.pid()));
  for (const char* nonsense :
       {"", "hvd-stacks", "hvd-stacks 2 60 1 /x\n", "hvd-stacks 1 60 -1 /x\n", "hvd-stacks 1 99999999999 1"}) {
    static_cast<void>(pwrite(stacks_file, nonsense, std::strlen(nonsense) + 1, 0));
    CHECK_FALSE(memory.ask_for_stacks(silent.pid()));
  }
  CHECK(memory.answer().text.empty());
  CHECK(kill(silent.pid(), 0) == 0);
}

TEST_CASE("a rank cannot write more than there is room for") {
  RankMemory memory;
  Rank flooding(memory, [] {
    const std::string much(1 << 20, 'x');
    lseek(stacks_file, 0, SEEK_SET);
    static_cast<void>(write(stacks_file, much.data(), much.size()));
    if (write(stacks_file, much.data(), much.size()) > 0) _exit(1);
  });
  CHECK_FALSE(memory.ask_for_stacks(flooding.pid()));
  CHECK(memory.answer().text.size() <= 256 << 10);
  CHECK(memory.status(true, flooding.pid(), Clock::now()).stack.size() <= 16 << 10);
}

TEST_CASE("a rank that is stopped, and one that is dead, still tell what they were doing") {
  RankMemory memory;
  Rank rank(memory, [&] {
    FlightRecorder recorder(memory.descriptors()[0], 3);
    FlightWords operation{};
    recorder.performing(operation, 118);
  });
  RankStatus status = memory.status(true, rank.pid(), Clock::now());
  CHECK(status.rank == 3);
  CHECK(status.pid == rank.pid());
  CHECK_FALSE(status.stopped);
  rank.signal(SIGSTOP, WUNTRACED);
  CHECK(memory.status(true, rank.pid(), Clock::now()).stopped);
  rank.signal(SIGCONT, WCONTINUED);
  CHECK_FALSE(memory.status(true, rank.pid(), Clock::now()).stopped);
  const pid_t was = rank.pid();
  rank.end();
  status = memory.status(true, was, Clock::now());
  REQUIRE(status.open.size() == 1);
  CHECK(status.open[0].sequence == 118);
  CHECK_FALSE(status.stopped);
}

TEST_CASE("a rank is stalled while an operation takes longer than its stall time") {
  RankMemory memory;
  TimePoint now = Clock::now();
  CHECK_FALSE(memory.is_stalled(now));
  FlightRecorder recorder(memory.descriptors()[0], 3, 2s);
  recorder.initialized();
  const FlightWords operation{};
  CHECK_FALSE(memory.is_stalled(now));
  FlightEntry first = recorder.submitted(operation, 1);
  CHECK_FALSE(memory.is_stalled(now += 1s));
  CHECK_FALSE(memory.is_stalled(now += 1s));  // it was seen a second ago
  CHECK(memory.is_stalled(now += 1s));
  recorder.performing(operation, 2).done();  // it goes on
  CHECK_FALSE(memory.is_stalled(now += 1s));
  CHECK(memory.is_stalled(now += 2s));  // but not the first one
  first.performing(flight_time());
  CHECK(memory.is_stalled(now += 1s));
  first.ended(StatusCode::ok);
  CHECK_FALSE(memory.is_stalled(now += 1s));
  CHECK_FALSE(memory.is_stalled(now += 100s));  // it is elsewhere
  recorder.stalled("waiting for rank 1");
  CHECK(memory.is_stalled(now));
}

TEST_CASE("a rank is stalled while it waits in init for longer than its stall time") {
  RankMemory memory;
  FlightRecorder recorder(memory.descriptors()[0], 3, 2s);
  const TimePoint now = Clock::now();
  CHECK_FALSE(memory.is_stalled(now + 1s));
  CHECK(memory.is_stalled(now + 3s));
  CHECK(memory.status(false, getpgrp(), now + 3s).initializing >= 2s);
  recorder.initialized();
  CHECK_FALSE(memory.is_stalled(now + 3s));
  CHECK_FALSE(memory.status(false, getpgrp(), now + 3s).initializing);
}

TEST_CASE("a rank has met the others when it has been in init and left it") {
  const RankMemory memory;
  CHECK_FALSE(memory.has_initialized());
  FlightRecorder recorder(memory.descriptors()[0], 0);
  CHECK_FALSE(memory.has_initialized());
  recorder.initialized();
  CHECK(memory.has_initialized());
}

TEST_CASE("a rank without a stall time is never stalled by the clock") {
  RankMemory memory;
  FlightRecorder recorder(memory.descriptors()[0], 3);
  const TimePoint now = Clock::now();
  CHECK_FALSE(memory.is_stalled(now + 1000s));
  recorder.initialized();
  recorder.submitted(FlightWords{}, 1);
  CHECK_FALSE(memory.is_stalled(now));
  CHECK_FALSE(memory.is_stalled(now + 1000s));
}

}  // namespace
}  // namespace hvd::launcher
