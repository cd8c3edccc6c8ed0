#include "launcher/remote/listening_agent.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/net/authentication.h"
#include "core/net/sealed_stream.h"
#include "launcher/output/rank_pipes.h"
#include "launcher/plan/host_plan.h"
#include "launcher/processes/child_process.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxInput = std::size_t{1} << 20;     // of a bootstrap message
constexpr std::size_t kMaxUnsent = std::size_t{256} << 10;  // output beyond that is dropped
constexpr std::size_t kMaxOutput = std::size_t{64} << 10;   // of one message
constexpr std::size_t kMaxCallers = 64;
constexpr Duration kCallerTimeout = 10s;  // for its message to come, and for its agent's end to be taken
constexpr Duration kQuietTime = 5s;       // for which a caller waits before it says so

// What a listening agent sends: the kind, and then text, or the exit code as text.
enum class Kind : std::uint8_t { output = 1, end = 2 };

Bytes message_of(Kind kind, std::string_view text) {
  Bytes message{static_cast<std::byte>(kind)};
  const auto bytes = std::as_bytes(std::span(text));
  message.insert(message.end(), bytes.begin(), bytes.end());
  return message;
}

JobKey key_of_agents(const std::string& who) {
  const char* const hex = std::getenv("HVD_JOB_KEY");
  if (hex != nullptr && *hex != '\0') return JobKey::from_hex(hex);
  throw InvalidArgument(who +
                        ": HVD_JOB_KEY is not set. It is the secret by which hvdrun and its listening agents know each "
                        "other: make one with openssl rand -hex 32, and set it for all of them");
}

// An hvdrun that has authenticated.
struct Caller {
  Caller(Socket connection, const JobKey& key)
      : socket(std::move(connection)),
        stream(key, SealedStream::End::server, kMaxInput),
        host(socket.peer_host()),
        deadline(deadline_after(kCallerTimeout)) {}

  Socket socket;
  SealedStream stream;
  const std::string host;
  Bytes unsent;
  std::optional<Bytes> input{};      // of its agent; empty: it has not come yet
  bool is_over = false;              // it has been told how its agent has ended
  std::optional<Deadline> deadline;  // for its input, or for the last bytes to be taken
};

class ListeningAgent {
 public:
  ListeningAgent(const ListenOptions& options, SignalSource& signals)
      : options_(options),
        signals_(signals),
        key_(key_of_agents("hvdrun agent --listen")),
        log_("hvdrun agent", LogLevel::info),
        timer_(loop_, [this] { on_time(); }),
        acceptor_(std::in_place, Listener::tcp(options.host, options.port), key_, Purpose::agents, log_) {
    loop_.watch(acceptor_->fd(), EPOLLIN, [this] { greet(); });
    loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
    if (options_.until_eof) watch_input();
  }

  int run() {
    std::printf("hvdrun agent: listening on %d\n", acceptor_->address().port);
    std::fflush(stdout);
    while (acceptor_ || agent_ > 0 || !callers_.empty()) {
      set_timer();
      loop_.run_once(std::nullopt);
    }
    return ending_ ? 128 + *ending_ : exit_code_;
  }

 private:
  void greet() {
    while (auto peer = acceptor_->accept_now()) {
      if (callers_.size() >= kMaxCallers) continue;
      const int number = ++last_caller_;
      callers_[number] = std::make_unique<Caller>(std::move(peer->socket), key_);
      send(number, callers_[number]->stream.greeting());
    }
  }

  void hear(int number) {
    const auto found = callers_.find(number);
    if (found == callers_.end()) return;
    Caller& caller = *found->second;
    std::array<std::byte, 4096> bytes;
    const auto count = caller.socket.receive_some(bytes);
    if (!count) return drop(number);
    try {
      caller.stream.feed(std::span(bytes).first(*count));
      while (auto message = caller.stream.next()) {
        if (caller.input) throw PeerLost("it has sent more than its agent's input");
        caller.input = std::move(*message);
        caller.deadline.reset();
        if (agent_ > 0) {
          say(number, "the agent there serves another hvdrun, at " + served_host_ + ", until that job has ended\n");
        }
      }
    } catch (const PeerLost& error) {
      log_.warning("dropped hvdrun at " + caller.host + ": " + error.what());
      return drop(number);
    }
    serve_next();
  }

  void serve_next() {
    while (agent_ <= 0 && acceptor_) {
      const auto waits = [](const auto& entry) { return entry.second->input && !entry.second->is_over; };
      const auto next = std::ranges::find_if(callers_, waits);
      if (next == callers_.end()) return;
      serve(next->first, *next->second);
    }
  }

  void serve(int number, const Caller& caller) {
    served_ = number;
    served_host_ = caller.host;
    try {
      start_agent(*caller.input);
      log_.info("serves hvdrun at " + served_host_);
      if (options_.once) stop_listening();
    } catch (const Error& error) {
      say(served_, std::string(error.what()) + "\n");
      report_exit(1);
    }
  }

  void start_agent(std::span<const std::byte> bytes) {
    const FileDescriptor input = memory_file(bytes);
    auto [reader, writer] = make_pipe();
    ChildStart start;
    start.program = "/proc/self/exe";
    start.arguments = {"hvdrun", "agent", "--leave"};
    start.environment = to_entries(parse_environment(environ));
    start.standard_input = input.get();
    start.standard_output = start.standard_error = writer.get();
    getrlimit(RLIMIT_NOFILE, &start.open_files);
    agent_ = start_child(start, signals_);
    output_ =
        std::make_unique<OutputPipe>(loop_, std::move(reader), [this](std::string_view text) { say(served_, text); });
  }

  void say(int number, std::string_view text) {
    while (!text.empty()) {
      const std::string_view part = text.substr(0, kMaxOutput);
      text.remove_prefix(part.size());
      const auto found = callers_.find(number);
      if (found == callers_.end()) {
        std::fwrite(part.data(), 1, part.size(), stderr);
      } else if (found->second->unsent.size() < kMaxUnsent) {
        send(number, found->second->stream.seal(message_of(Kind::output, part)));
      }
    }
  }

  // The served caller's agent has ended.
  void report_exit(int exit_code) {
    exit_code_ = exit_code;
    const auto found = callers_.find(std::exchange(served_, -1));
    if (found == callers_.end()) return;
    Caller& caller = *found->second;
    caller.is_over = true;
    caller.deadline = deadline_after(kCallerTimeout);
    send(found->first, caller.stream.seal(message_of(Kind::end, std::to_string(exit_code))));
  }

  void send(int number, const Bytes& frame) {
    Bytes& unsent = callers_.at(number)->unsent;
    unsent.insert(unsent.end(), frame.begin(), frame.end());
    flush(number);
  }

  void flush(int number) {
    const auto found = callers_.find(number);
    if (found == callers_.end()) return;
    Caller& caller = *found->second;
    const auto count = caller.socket.send_some(caller.unsent);
    if (!count) return;  // it is closed at the other end: hear() drops it, or on_time()
    caller.unsent.erase(caller.unsent.begin(), caller.unsent.begin() + static_cast<std::ptrdiff_t>(*count));
    loop_.forget(caller.socket.fd());
    loop_.watch(caller.socket.fd(), caller.unsent.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT, [this, number] {
      flush(number);
      hear(number);
    });
  }

  void drop(int number) {
    loop_.forget(callers_.at(number)->socket.fd());
    callers_.erase(number);
  }

  void watch_input() {
    try {
      loop_.watch(STDIN_FILENO, EPOLLIN, [this] { discard_input(); });
    } catch (const Error&) {  // epoll refuses files and /dev/null
      throw InvalidArgument("hvdrun agent --until-eof: standard input is no pipe, so it has no end to wait for");
    }
  }

  void discard_input() {
    std::array<std::byte, 4096> bytes;
    const ssize_t count = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN))) return;
    loop_.forget(STDIN_FILENO);
    log_.info("ends: whoever has started it has ended");
    end_with(SIGTERM, SIGINT);  // on SIGTERM, an elastic job would use the host until its next commit
  }

  void end_with(int signal, int agents_signal) {
    if (agent_ > 0) kill(agent_, agents_signal);
    ending_ = signal;
    stop_listening();
  }

  void on_signals() {
    for (const int signal : signals_.take()) {
      if (asks_to_end(signal)) end_with(signal, SIGTERM);
      if (signal == SIGUSR1 && agent_ > 0) kill(agent_, SIGUSR1);
    }
    for (const auto& [pid, status] : reap_children()) {
      if (pid != agent_) continue;
      agent_ = -1;
      std::exchange(output_, nullptr)->close_when_empty();
      log_.info("the agent of hvdrun at " + served_host_ + " " + ending_text(status));
      report_exit(status.exit_code());
    }
    serve_next();
  }

  // No further hvdrun is served; those that wait try again elsewhere, or later.
  void stop_listening() {
    if (!acceptor_) return;
    loop_.forget(acceptor_->fd());
    acceptor_.reset();
    std::vector<int> waiting;
    for (const auto& [number, caller] : callers_) {
      if (number != served_ && !caller->is_over) waiting.push_back(number);
    }
    for (const int number : waiting) drop(number);
  }

  void on_time() {
    if (acceptor_) greet();  // drops those that have not proved themselves
    std::vector<int> late;
    for (const auto& [number, caller] : callers_) {
      if (caller->deadline && Clock::now() >= *caller->deadline) late.push_back(number);
    }
    for (const int number : late) drop(number);
  }

  void set_timer() {
    std::optional<Deadline> next;
    if (acceptor_ && acceptor_->next_deadline() != Deadline::max()) next = acceptor_->next_deadline();
    for (const auto& [number, caller] : callers_) {
      if (caller->deadline && (!next || *caller->deadline < *next)) next = caller->deadline;
    }
    timer_.set(next);
  }

  const ListenOptions options_;
  SignalSource& signals_;
  const JobKey key_;
  const Log log_;
  EventLoop loop_;
  Timer timer_;
  std::optional<Acceptor> acceptor_;                // empty: no further hvdrun is served
  std::map<int, std::unique_ptr<Caller>> callers_;  // by number: in the order of their coming
  int last_caller_ = 0;
  int served_ = -1;  // the number of the caller whose agent runs; it may be gone
  std::string served_host_;
  pid_t agent_ = -1;
  std::unique_ptr<OutputPipe> output_;  // of the agent
  int exit_code_ = 0;                   // of the last agent
  std::optional<int> ending_;           // the signal that ends this process
};

// --- The other end ---

Bytes read_input() {
  Bytes input(kMaxInput);
  std::size_t size = 0;
  while (size < input.size()) {
    const ssize_t count = read(STDIN_FILENO, input.data() + size, input.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    size += static_cast<std::size_t>(count);
  }
  input.resize(size);
  return input;
}

// Pods that pull their image and processes that start take their time, so a caller tries again.
Socket reach(const std::string& address, const JobKey& key, Deadline deadline) {
  const Address place = Address::parse("tcp:" + address);
  for (Deadline until = std::min(deadline, deadline_after(kQuietTime));; until = deadline) {
    try {
      return connect_authenticated(place, key, Purpose::agents, 0, until);
    } catch (const Timeout& error) {
      const std::string cause = "no agent listens at " + address + " (" + error.what() + ")";
      if (until == deadline) {
        throw Timeout(cause + ": is `hvdrun agent --listen " + std::to_string(place.port) + "` running there?");
      }
      std::fprintf(stderr, "%s; tries on\n", cause.c_str());
    } catch (const PeerLost& error) {
      throw PeerLost("the agent at " + address + " does not accept this hvdrun: " + error.what() +
                     "; HVD_JOB_KEY and hvd's version must be the same there and here");
    }
  }
}

// Returns the agent's exit code.
int relay(Socket& socket, SealedStream& stream, const Bytes& input, const std::string& where, Deadline deadline) {
  socket.send_all(stream.greeting(), deadline, where);
  bool has_sent = false;
  std::array<std::byte, 4096> bytes;
  while (true) {
    wait_ready(socket.fd(), false, has_sent ? Deadline::max() : deadline);
    const auto count = socket.receive_some(bytes);
    if (!count) throw PeerLost(where + " has closed the connection");
    stream.feed(std::span(bytes).first(*count));
    while (const auto message = stream.next()) {
      const std::string_view text(reinterpret_cast<const char*>(message->data()), message->size());
      if (text.empty()) continue;
      if (text.front() == static_cast<char>(Kind::end)) return parse_number<int>(text.substr(1)).value_or(1);
      std::fwrite(text.data() + 1, 1, text.size() - 1, stderr);
    }
    if (!has_sent && stream.ready()) {
      socket.send_all(stream.seal(input), deadline, where);
      has_sent = true;
    }
    if (!has_sent && Clock::now() >= deadline) throw Timeout(where + " does not answer");
  }
}

}  // namespace

ListenOptions parse_listen(const std::vector<std::string>& words) {
  ListenOptions options;
  std::string place;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--once") {
      options.once = true;
    } else if (words[i] == "--until-eof") {
      options.until_eof = true;
    } else if (words[i] == "--listen" && i + 1 < words.size()) {
      place = words[++i];
    } else if (words[i].starts_with("--listen=")) {
      place = words[i].substr(words[i].find('=') + 1);
    } else {
      throw InvalidArgument("hvdrun agent " + words[i] +
                            ": hvdrun agent --listen [ADDRESS:]PORT [--once] [--until-eof]");
    }
  }
  const auto colon = place.rfind(':');
  if (colon != std::string::npos) options.host = place.substr(0, colon);
  if (options.host.starts_with('[') && options.host.ends_with(']')) {  // [::1]:7780
    options.host = options.host.substr(1, options.host.size() - 2);
  }
  const auto port = parse_number<std::uint16_t>(place.substr(colon == std::string::npos ? 0 : colon + 1));
  if (!port || options.host.empty()) {
    throw InvalidArgument("hvdrun agent --listen " + place + ": [ADDRESS:]PORT, with a port from 0 to 65535");
  }
  options.port = *port;
  return options;
}

int run_listening_agent(const ListenOptions& options, SignalSource& signals) {
  return ListeningAgent(options, signals).run();
}

int call_agent(const std::string& address, Duration timeout, SignalSource& signals) {
  const Deadline deadline = deadline_after(timeout);
  signals.restore_original();  // it has nothing to tidy up
  try {
    const JobKey key = key_of_agents("hvdrun agent --call");
    const Bytes input = read_input();
    Socket socket = reach(address, key, deadline);
    SealedStream stream(key, SealedStream::End::client, kMaxOutput + 1);
    return relay(socket, stream, input, "the agent at " + address, deadline);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace hvd::launcher
