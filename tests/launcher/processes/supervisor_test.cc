#include "launcher/processes/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <set>
#include <string>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/supervisor_messages.h"
#include "tests/support/catch.h"
#include "tests/support/timeouts.h"

namespace hvd::launcher {
namespace {

std::string text_of(pid_t pid, const std::string& file) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/" + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

ChildStart shell(const std::string& command, int output) {
  ChildStart start;
  start.program = "/bin/sh";
  start.arguments = {"sh", "-c", command};
  start.environment = {"PATH=/usr/bin:/bin", "WORD=a word"};
  start.standard_input = start.standard_error = open("/dev/null", O_RDWR | O_CLOEXEC);
  start.standard_output = output;
  return start;
}

// A rank that says its own pid and those of what it leaves running: a child, and a daemon of which nobody knows, with
// an empty environment, in a session of its own. It says them once a line comes in.
constexpr const char* kRank =
    "read line; sleep 60 & echo $$; echo $!; (setsid env -i /bin/sh -c 'echo $$; exec /bin/sleep 60' &); exec sleep 60";

// A stand-in for hvdrun, in a process of its own. This process is the subreaper of all.
class StandIn {
 public:
  using Play = std::function<void(Supervisor&, int output)>;

  explicit StandIn(const Play& play) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    auto [reader, writer] = make_pipe();
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      reader.reset();
      {
        const SignalSource signals;
        Supervisor supervisor(signals);
        try {
          play(supervisor, writer.get());
        } catch (const std::exception& error) {  // must not reach Catch, which would go on to the next test in here
          std::cerr << "the stand-in for hvdrun: " << error.what() << std::endl;
        }
      }
      _exit(0);
    }
    setpgid(pid_, pid_);
    writer.reset();
    output_ = std::move(reader);
  }
  ~StandIn() {
    kill(pid_, SIGKILL);
    kill_descendants({}, deadline_after(5s));
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  pid_t pid() const { return pid_; }
  int wait() const {
    int status = 0;
    return waitpid(pid_, &status, 0) == pid_ ? status : -1;
  }
  pid_t read_number() const { return static_cast<pid_t>(std::stol("0" + read_line())); }
  std::string read_line() const {
    std::string line;
    for (char byte = 0; read(output_.get(), &byte, 1) == 1 && byte != '\n';) line += byte;
    return line;
  }

 private:
  pid_t pid_ = -1;
  FileDescriptor output_;
};

void say(int output, const std::string& line) {
  if (write(output, (line + "\n").data(), line.size() + 1) < 0) _exit(1);
}

bool runs(pid_t pid) {
  const auto entry = read_process_stat(pid);
  return entry && !entry->zombie;
}

bool all_end_within(Duration time, const std::vector<pid_t>& pids) {
  for (const Deadline deadline = deadline_after(time); Clock::now() < deadline; poll(nullptr, 0, 2)) {
    if (std::none_of(pids.begin(), pids.end(), runs)) return true;
  }
  return false;
}

// Receives until the condition holds or 10 s have passed.
bool receive_until(Supervisor& supervisor, const std::function<bool()>& condition) {
  for (const Deadline deadline = deadline_after(60s); Clock::now() < deadline;) {
    if (condition()) return true;
    pollfd ready{.fd = supervisor.fd(), .events = POLLIN, .revents = 0};
    poll(&ready, 1, 100);
    if (!supervisor.receive()) return condition();
  }
  return false;
}

// Those of kRank, and the supervisor first.
std::vector<pid_t> job_of(const StandIn& hvdrun) {
  std::vector<pid_t> pids;
  for (int i = 0; i < 4; ++i) pids.push_back(hvdrun.read_number());
  return pids;
}

// The rank speaks only after start() has returned: the supervisor may be killed as soon as all pids are known.
void run_rank(Supervisor& supervisor, int output) {
  auto [input, line] = make_pipe();
  ChildStart start = shell(kRank, output);
  start.standard_input = input.get();
  supervisor.start(0, start);
  say(output, std::to_string(supervisor.pid()));
  say(line.get(), "");
}

TEST_CASE("a late answer of the supervisor is not taken for that to the next request") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    supervisor.start(0, shell("exec sleep 60", output));
    // While it is traced, SIGCONT does not continue it.
    const bool is_held = ptrace(PTRACE_SEIZE, supervisor.pid(), nullptr, nullptr) == 0 &&
                         ptrace(PTRACE_INTERRUPT, supervisor.pid(), nullptr, nullptr) == 0 &&
                         waitpid(supervisor.pid(), nullptr, __WALL) == supervisor.pid();
    const bool has_answered = !supervisor.list_left().empty();
    ptrace(PTRACE_DETACH, supervisor.pid(), nullptr, nullptr);
    const pid_t second = supervisor.start(1, shell("exec sleep 60", output));
    say(output, is_held && !has_answered && runs(second) ? "started" : "not");
  });
  CHECK(hvdrun.read_line() == "started");
}

TEST_CASE("a killed hvdrun leaves nothing of its job, whatever it was", "[timed]") {
  const bool whole_group = GENERATE(false, true);
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    run_rank(supervisor, output);
    pause();
  });
  const std::vector<pid_t> job = job_of(hvdrun);
  for (const pid_t pid : job) CHECK(runs(pid));
  kill(whole_group ? -hvdrun.pid() : hvdrun.pid(), SIGKILL);
  CHECK(all_end_within(testing::at_most(2s), job));
}

TEST_CASE("a hvdrun that ends for any other reason leaves nothing either", "[timed]") {
  const StandIn hvdrun(run_rank);
  const std::vector<pid_t> job = job_of(hvdrun);
  hvdrun.wait();
  CHECK(all_end_within(testing::at_most(2s), job));
}

TEST_CASE("a stopped hvdrun ends with its job when the lease is over", "[timed]") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    run_rank(supervisor, output);
    supervisor.set_lease(300ms);
    supervisor.renew_lease();
    raise(SIGSTOP);
  });
  CHECK(all_end_within(testing::at_most(3s), job_of(hvdrun)));
  const int status = hvdrun.wait();
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

TEST_CASE("a hvdrun that renews its lease lives on") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    run_rank(supervisor, output);
    supervisor.set_lease(1s);
    for (;; poll(nullptr, 0, 20)) supervisor.renew_lease();
  });
  const std::vector<pid_t> job = job_of(hvdrun);
  CHECK_FALSE(all_end_within(2s, {job.begin(), job.begin() + 1}));
  for (const pid_t pid : job) CHECK(runs(pid));
  CHECK(runs(hvdrun.pid()));
}

// Descriptors of this process that whoever started it has meant for what it starts.
int passed_on() {
  int count = 0;
  for (int fd = STDERR_FILENO + 1; fd < 1024; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    count += flags >= 0 && (flags & FD_CLOEXEC) == 0;
  }
  return count;
}

TEST_CASE(
    "a supervisor is hvdrun's child, in a process group of its own and in its session, with no descriptor of its") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    run_rank(supervisor, output);
    pause();
  });
  const pid_t supervisor = job_of(hvdrun).front();
  CHECK(read_process_stat(supervisor)->parent == hvdrun.pid());
  CHECK(getpgid(supervisor) == supervisor);
  CHECK(getsid(supervisor) == getsid(hvdrun.pid()));
  CHECK(text_of(supervisor, "cmdline").starts_with(kSupervisorName));
  CHECK(text_of(supervisor, "comm") == std::string(kSupervisorName) + "\n");
  // The first three, the sockets' end, and that of SIGCHLD.
  const std::filesystem::directory_iterator folder("/proc/" + std::to_string(supervisor) + "/fd");
  CHECK(std::distance(begin(folder), end(folder)) == 5 + passed_on());
}

TEST_CASE("a supervisor that somebody stops is asked to go on") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    kill(supervisor.pid(), SIGSTOP);
    ChildStart start = shell("echo started", output);
    for (char name = 'A'; name <= 'H'; ++name) {  // together more than a socket holds
      start.environment.push_back(std::string(1, name) + "=" + std::string(100'000, 'x'));
    }
    supervisor.start(0, start);
    receive_until(supervisor, [&] { return !supervisor.any_left(); });
  });
  CHECK(hvdrun.read_line() == "started");
}

TEST_CASE("signals of the terminal and SIGTERM do not end a supervisor", "[timed]") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    run_rank(supervisor, output);
    pause();
  });
  const std::vector<pid_t> job = job_of(hvdrun);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGPIPE}) kill(job[0], signal);
  CHECK_FALSE(all_end_within(100ms, {job[0]}));
  CHECK(read_process_stat(job[0]).has_value());
  kill(hvdrun.pid(), SIGKILL);
  CHECK(all_end_within(testing::at_most(2s), job));
}

TEST_CASE("a rank's end is reported, and that of everything") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    supervisor.start(7, shell("exit 3", output));
    supervisor.start(8, shell("kill -SEGV $$", output));
    std::vector<Supervisor::Ended> ended;
    const bool all = receive_until(supervisor, [&] {
      for (const Supervisor::Ended& entry : supervisor.take_ended()) ended.push_back(entry);
      return !supervisor.any_left() && ended.size() == 2;
    });
    for (const Supervisor::Ended& entry : ended) {
      say(output, std::to_string(entry.rank) + " " + std::to_string(entry.status.exit_code()));
    }
    say(output, all ? "all" : "not all");
  });
  const std::set<std::string> lines = {hvdrun.read_line(), hvdrun.read_line()};
  CHECK(lines == std::set<std::string>{"7 3", "8 139"});
  CHECK(hvdrun.read_line() == "all");
}

TEST_CASE("what a rank leaves is something that is left, and can be signalled") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    supervisor.start(0, shell("setsid env -i /bin/sleep 60 &", output));
    std::size_t ended = 0;
    receive_until(supervisor, [&] { return (ended += supervisor.take_ended().size()) == 1; });
    const bool listed = receive_until(supervisor, [&] { return supervisor.list_left().size() == 1; });
    say(output, std::to_string(supervisor.any_left() && listed));
    supervisor.signal_all(SIGTERM);
    say(output, std::to_string(receive_until(supervisor, [&] { return !supervisor.any_left(); })));
  });
  CHECK(hvdrun.read_line() == "1");
  CHECK(hvdrun.read_line() == "1");
}

TEST_CASE("a rank gets its descriptors under the numbers it was told, its environment and its limits") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    auto [a_reader, a_writer] = make_pipe();
    auto [b_reader, b_writer] = make_pipe();
    say(a_writer.get(), "a");
    say(b_writer.get(), "b");
    // Numbers that the supervisor's own descriptors, and those that it receives, have, too.
    for (const auto& [a, b] : std::vector<std::pair<int, int>>{{5, 6}, {8, 7}, {9, 3}, {3, 4}}) {
      ChildStart start = shell("read x <&" + std::to_string(a) + "; read y <&" + std::to_string(b) +
                                   R"sh(; echo "$x $y $WORD $(ulimit -n)")sh",
                               output);
      start.inherited = {{.fd = a_reader.get(), .number = a}, {.fd = b_reader.get(), .number = b}};
      supervisor.start(0, start);
      receive_until(supervisor, [&] { return !supervisor.any_left(); });
      say(output, std::to_string(limit.rlim_cur));
      say(a_writer.get(), "a");
      say(b_writer.get(), "b");
    }
  });
  for (int i = 0; i < 4; ++i) {
    const std::string line = hvdrun.read_line();
    CHECK(line == "a b a word " + hvdrun.read_line());
  }
}

TEST_CASE("a killed supervisor takes the ranks with it, and hvdrun ends what they leave", "[timed]") {
  const StandIn hvdrun([](Supervisor& supervisor, int output) {
    const pid_t pid = supervisor.pid();
    run_rank(supervisor, output);
    receive_until(supervisor, [] { return false; });
    while (waitpid(pid, nullptr, 0) != pid) {
    }
    say(output, std::to_string(supervisor.kill_orphans()));
    try {
      supervisor.start(1, shell("true", output));
    } catch (const Error& error) {
      say(output, error.what());
    }
  });
  const std::vector<pid_t> job = job_of(hvdrun);
  kill(job[0], SIGKILL);
  CHECK(hvdrun.read_line() == "1");
  CHECK(all_end_within(testing::at_most(100ms), job));
  CHECK(hvdrun.read_line() == "cannot reach the supervisor of the ranks: Broken pipe");
}

TEST_CASE("malformed requests are answered with an error") {
  auto [own, other] = make_packet_sockets();
  const pid_t self = getpid();
  const SignalSource signals;
  const pid_t pid = fork();
  if (pid == 0) run_supervisor(std::move(other), signals, self);
  other.reset();
  const auto answer = [&](const std::string& bytes, const std::vector<int>& descriptors) {
    REQUIRE(send_packet(own.get(), bytes, descriptors));
    pollfd ready{.fd = own.get(), .events = POLLIN, .revents = 0};
    REQUIRE(poll(&ready, 1, 10'000) == 1);
    const SupervisorReport report = decode_supervisor_report(receive_packet(own.get())->bytes);
    CHECK(report.kind == SupervisorReport::Kind::not_started);
    return report.text;
  };
  const FileDescriptor nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::string start = encode(SupervisorRequest{.kind = SupervisorRequest::Kind::start});
  CHECK(answer("x" + start.substr(1), {}) == "malformed message: of no known kind");
  CHECK(answer(start + "x", {}) == "malformed message: bytes after its end");
  CHECK(answer(start, {nothing.get(), nothing.get(), nothing.get()}) == "malformed message: it ends too early");
  const std::string all = encode_value(shell("true", nothing.get()));
  REQUIRE(send_packet(own.get(), encode(SupervisorRequest{.kind = SupervisorRequest::Kind::start_part, .part = all})));
  CHECK(answer(start, {nothing.get()}) == "malformed message: not as many descriptors as it says");
  own.reset();
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
  signals.restore_original();
}

}  // namespace
}  // namespace hvd::launcher
