// A rank, here a child of the test, and what is read of it from outside.
// Ranks as their recorders and their answers alone: what they would write, the test writes.
#include "launcher/job/rank_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "core/flight/flight_recorder.h"
#include "tests/launcher/written_stack.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

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
  for (const Deadline deadline = deadline_after(60s); Clock::now() < deadline; std::this_thread::sleep_for(10ms)) {
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

class Listener : public HostListener {
 public:
  struct Answer {
    int host;
    std::uint64_t query_id;
    std::vector<RankStatus> statuses;
  };

  void rank_started(int, pid_t) override {}
  void rank_not_started(int, const std::string&, int) override {}
  void rank_wrote(int, Stream, std::string_view) override {}
  void input_consumed(int) override {}
  void rank_ended(int, ExitStatus, const JobEnding&) override {}
  void nothing_left(int) override {}
  void host_lost(int, const std::string&) override {}
  void warning(const std::string& line) override { complaints.push_back(line); }
  void statuses(int host, std::uint64_t query_id, std::vector<RankStatus> statuses) override {
    answers.push_back({host, query_id, std::move(statuses)});
  }
  void initialized(int host) override { met_hosts.push_back(host); }
  void stalled(int host, bool on) override { stalls.emplace_back(host, on); }

  std::vector<std::string> complaints;
  std::vector<Answer> answers;
  std::vector<int> met_hosts;
  std::vector<std::pair<int, bool>> stalls;
};

constexpr int kHost = 7;

struct Machine {
  EventLoop loop;
  Listener listener;
  RankMemories memories{loop, listener, kHost};

  bool run_until(const std::function<bool()>& condition) {
    for (const Deadline deadline = deadline_after(60s); Clock::now() < deadline; loop.run_once(deadline)) {
      if (condition()) return true;
    }
    return condition();
  }
};

// This process as a rank that says how it is to be asked; `answer` is what it then does.
class AnnouncedRank {
 public:
  AnnouncedRank(const RankMemory& memory, void (*answer)(int)) {
    stacks_file = memory.descriptors()[1];
    std::signal(signal_, answer);
    const std::string line =
        "hvd-stacks 1 " + std::to_string(signal_) + " " + std::to_string(getpid()) + " /a folder/hvd\n";
    REQUIRE(pwrite(stacks_file, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size()));
  }
  ~AnnouncedRank() { std::signal(signal_, SIG_DFL); }
  AnnouncedRank(const AnnouncedRank&) = delete;
  AnnouncedRank& operator=(const AnnouncedRank&) = delete;

 private:
  const int signal_ = SIGRTMAX - 3;
};

TEST_CASE("all ranks that were started are told of at once, the dead ones too") {
  Machine machine;
  const RankMemory* const memory = machine.memories.make({.numbers = {.rank = 4}}, false);
  REQUIRE(memory != nullptr);
  machine.memories.make({.numbers = {.rank = 2}}, false);
  machine.memories.make({.numbers = {.rank = 9}}, false);  // never starts
  machine.memories.started(4, 1'000'000'004);              // no such process
  machine.memories.started(2, getpgrp());
  machine.memories.started(3, getpgrp());  // has no memory
  FlightRecorder recorder(memory->descriptors()[0], 1);
  recorder.initialized();
  recorder.submitted(FlightWords{}, 118);
  machine.memories.ended(4);
  machine.memories.query(31, false);
  REQUIRE(machine.listener.answers.size() == 1);
  const Listener::Answer& answer = machine.listener.answers[0];
  CHECK(answer.host == kHost);
  CHECK(answer.query_id == 31);
  REQUIRE(answer.statuses.size() == 2);
  CHECK(answer.statuses[0].rank == 2);
  CHECK(answer.statuses[0].open.empty());
  CHECK(answer.statuses[1].rank == 4);  // who started it knows, whatever it says itself
  REQUIRE(answer.statuses[1].open.size() == 1);
  CHECK(answer.statuses[1].open[0].sequence == 118);
}

TEST_CASE("stacks come as soon as all that were asked have answered, for everybody who has asked meanwhile") {
  Machine machine;
  const RankMemory* const memory = machine.memories.make({.numbers = {.rank = 0}}, false);
  machine.memories.make({.numbers = {.rank = 1}}, false);  // cannot be asked, and is not waited for
  const AnnouncedRank rank(*memory, write_stack);
  machine.memories.started(0, getpgrp());
  machine.memories.started(1, getpgrp());
  for (std::uint64_t time = 0; time < 2; ++time) {
    machine.listener.answers.clear();
    machine.memories.query(10 + time, true);
    machine.memories.query(20 + time, true);
    machine.memories.query(30 + time, false);  // waits for nobody
    REQUIRE(machine.listener.answers.size() == 1);
    CHECK(machine.listener.answers[0].query_id == 30 + time);
    CHECK_FALSE(machine.listener.answers[0].statuses[0].frame);
    REQUIRE(machine.run_until([&] { return machine.listener.answers.size() >= 3; }));
    REQUIRE(machine.listener.answers.size() == 3);
    for (const std::size_t i : {1, 2}) {
      const Listener::Answer& answer = machine.listener.answers[i];
      CHECK(answer.query_id == (i == 1 ? 10 : 20) + time);
      REQUIRE(answer.statuses.size() == 2);
      CHECK(answer.statuses[0].frame == PythonFrame{"train.py", 48, "load"});
      CHECK_FALSE(answer.statuses[1].frame);
    }
  }
}

TEST_CASE("a rank that does not answer is waited for half a second") {
  Machine machine;
  const AnnouncedRank rank(*machine.memories.make({.numbers = {.rank = 0}}, false), [](int) {});
  machine.memories.started(0, getpgrp());
  const TimePoint begin = Clock::now();
  machine.memories.query(1, true);
  CHECK(machine.listener.answers.empty());
  REQUIRE(machine.run_until([&] { return !machine.listener.answers.empty(); }));
  CHECK(Clock::now() - begin >= 500ms);
  CHECK(machine.listener.answers.size() == 1);
  CHECK_FALSE(machine.listener.answers[0].statuses[0].frame);
}

TEST_CASE("stalls are told when they begin, ever more seldom while they last, and when they are over") {
  Machine machine;
  const RankMemory* const first = machine.memories.make({.numbers = {.rank = 0}}, false);
  const RankMemory* const second = machine.memories.make({.numbers = {.rank = 1}}, false);
  FlightRecorder recorder(first->descriptors()[0], 0), other(second->descriptors()[0], 1);
  recorder.initialized();
  other.initialized();
  machine.memories.watch_for_stalls();
  CHECK(machine.listener.stalls.empty());
  recorder.submitted(FlightWords{}, 1);
  other.submitted(FlightWords{}, 1);
  recorder.stalled("waiting for rank 1");
  other.stalled("waiting for rank 0");
  using Stalls = std::vector<std::pair<int, bool>>;
  for (int look = 0; look < 8; ++look) machine.memories.watch_for_stalls();
  Stalls told(4, {kHost, true});  // at looks 0, 1, 3 and 7, once for both ranks
  CHECK(machine.listener.stalls == told);
  machine.memories.ended(0);
  machine.memories.watch_for_stalls();
  CHECK(machine.listener.stalls == told);  // the other one waits on
  machine.memories.ended(1);
  REQUIRE(machine.run_until([&] { return machine.listener.stalls.size() > told.size(); }));
  told.emplace_back(kHost, false);
  CHECK(machine.listener.stalls == told);
}

TEST_CASE("that all ranks have met is told once, to who wants to know; not if one has ended without") {
  const bool ends = GENERATE(true, false);
  Machine machine;
  const RankMemory* const first = machine.memories.make({.numbers = {.rank = 0}}, true);
  const RankMemory* const second = machine.memories.make({.numbers = {.rank = 1}}, true);
  machine.memories.watch_initialization();
  FlightRecorder recorder(first->descriptors()[0], 0);
  recorder.initialized();
  machine.memories.watch_initialization();
  CHECK(machine.listener.met_hosts.empty());
  if (ends) machine.memories.ended(1);
  FlightRecorder other(second->descriptors()[0], 1);
  other.initialized();
  const bool told = machine.run_until([&] { return ends || !machine.listener.met_hosts.empty(); });
  CHECK(told);
  machine.loop.run_once(deadline_after(50ms));
  CHECK(machine.listener.met_hosts == (ends ? std::vector<int>() : std::vector<int>{kHost}));
}

TEST_CASE("a rank for which there is no memory starts without, and the user hears of the first one at most") {
  if (testing::kSanitized) return;  // sanitizers need descriptors of their own
  const bool verbose = GENERATE(true, false);
  Machine machine;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const RankMemory* const memory = machine.memories.make({.numbers = {.rank = 0}}, verbose);
  const RankMemory* const next = machine.memories.make({.numbers = {.rank = 1}}, verbose);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(memory == nullptr);
  CHECK(next == nullptr);
  REQUIRE(machine.listener.complaints.size() == (verbose ? 1 : 0));
  if (verbose) CHECK(machine.listener.complaints[0].starts_with("rank 0 has no flight recorder: "));
  machine.memories.started(0, getpgrp());
  machine.memories.ended(0);
  machine.memories.query(1, true);
  REQUIRE(machine.listener.answers.size() == 1);
  CHECK(machine.listener.answers[0].statuses.empty());
}

TEST_CASE(
    "rank memory: a server where workers wait for a slower one is stalled, and so is a worker that waits for it") {
  const RankMemory memory;
  FlightRecorder recorder(memory.descriptors()[0], 0, 5s);
  recorder.initialized();
  RankMemory& looked_at = const_cast<RankMemory&>(memory);
  const TimePoint now = Clock::now();
  const auto since = [&](Duration ago) { return static_cast<std::uint64_t>((now - ago).time_since_epoch().count()); };
  ShardMetrics& shard = recorder.metrics()->shards[1];
  shard.number.set(2);
  shard.waiting.set(1);
  shard.waiting_since.set(since(6s));
  CHECK_FALSE(looked_at.is_stalled(now));  // for something else, such as a snapshot
  shard.slowest.set(4);
  CHECK(looked_at.is_stalled(now));
  const RankStatus status = memory.status(false, getpgrp(), now);
  REQUIRE(status.shards.size() == 1);
  CHECK(status.shards.front() == ShardFacts{.number = 1, .waiting = 1, .slowest = 3});
  CHECK(status.waited >= 6s);
  shard.waiting_since.set(since(4s));
  CHECK_FALSE(looked_at.is_stalled(now));
  recorder.metrics()->worker.waiting_since.set(since(6s));
  CHECK_FALSE(looked_at.is_stalled(now));  // it does not wait any more
  recorder.metrics()->worker.awaited.set(1);
  CHECK(looked_at.is_stalled(now));
  CHECK(memory.status(false, getpgrp(), now).awaited == 0);
}

}  // namespace
}  // namespace hvd::launcher
