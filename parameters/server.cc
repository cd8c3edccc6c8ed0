#include "parameters/server.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/futex.h"
#include "core/base/process.h"
#include "core/net/byte_codec.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/shard.h"
#include "parameters/snapshot.h"

namespace hvd {

namespace {

constexpr Duration kShareTime = std::chrono::seconds(2);  // for passing memory to a worker
constexpr Duration kSnapshotLook = std::chrono::milliseconds(10);
constexpr int kRequestsPerTurn = 64;  // of one connection, before the others have theirs
constexpr int kTurnsPerPoll = 64;     // while busy: sockets are looked at once in so many turns

// A connection of a worker.
struct Client {
  std::unique_ptr<Pipe> pipe;
  bool shares_memory = false;
  int worker = -1;  // -1: it has not said hello
  bool has_left = false;
  bool is_answering = false;               // has to answer the request in front when a snapshot is complete
  std::size_t unread = 0;                  // bytes that could not be answered yet
  std::optional<TimePoint> waits_since{};  // its request in front waits for other workers
  bool stall_told = false;
};

struct Lost {
  int worker;
  TimePoint since;
};

// A child that writes a snapshot.
struct Snapshot {
  pid_t child = -1;
  std::string folder;
  std::optional<int> error{};  // once it has ended: 0, or an errno value
};

}  // namespace

std::string ServerPlace::to_string() const {
  ByteWriter writer;
  for (const std::string* part : {&local, &remote, &host_key}) writer.put_string(*part);
  const Bytes bytes = writer.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ServerPlace ServerPlace::parse(const std::string& text) {
  ByteReader reader(std::as_bytes(std::span(text)));
  ServerPlace place;
  for (std::string* part : {&place.local, &place.remote, &place.host_key}) *part = reader.get_string();
  reader.expect_end();
  return place;
}

class ParameterServer::State {
 public:
  State(const ServerOptions& options, const Store& store, const JobKey& key, const Log& log)
      : options_(options),
        log_(log),
        shard_(static_cast<std::uint32_t>(options.server), static_cast<std::uint32_t>(options.servers), options.memory),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        cpus_(static_cast<int>(count_cpus())) {
    if (!epoll_ || !bell_) throw Internal("epoll: " + error_text(errno));
    watch(bell_.get());
    const std::int64_t start = store.add(ps_keys::starts(options.server), 1);
    if (start > 1 && has_snapshot(options.snapshot)) {
      restore_snapshot(shard_, options.snapshot);
      log_.warning("was started again, from the last snapshot in " + options.snapshot +
                   ": updates since then are lost");
    }
    ServerPlace place{.local = {}, .remote = {}, .host_key = options.host_key};
    place.remote = listen(Listener::tcp(options.local_host), key);
    if (options.shares_memory) place.local = listen(Listener::unix_abstract(), key);
    store.set(ps_keys::place(options.server, start), place.to_string());
  }

  ~State() {
    if (snapshot_.child > 0) {
      kill(snapshot_.child, SIGKILL);
      waitpid(snapshot_.child, nullptr, 0);
    }
  }

  void run() {
    next_snapshot_ = options_.interval > Duration::zero() ? deadline_after(options_.interval) : Deadline::max();
    int idle_turns = 0;
    for (int turn = 0; !stops_; ++turn) {
      const bool is_busy = serve_all();
      if (is_busy) idle_turns = 0;
      if (shard_.is_over()) return finish();
      if (is_busy || idle_turns < idle_limit()) {
        if (!is_busy) rest();
        if (!is_busy) ++idle_turns;
        if (turn % kTurnsPerPoll == 0) poll(Duration::zero());
        continue;
      }
      sleep();
      idle_turns = 0;
    }
    finish();
  }

  void stop() noexcept {
    const std::uint64_t one = 1;
    stops_ = true;
    (void)!write(bell_.get(), &one, sizeof one);
  }

 private:
  static std::size_t count_cpus() {
    std::size_t count = 0;
    for (const std::uint64_t word : allowed_cpus()) count += static_cast<std::size_t>(__builtin_popcountll(word));
    return std::max<std::size_t>(count, 1);
  }

  std::string listen(Listener listener, const JobKey& key) {
    const std::string address = listener.address().to_string();
    listeners_.emplace_back(std::move(listener), key, Purpose::parameters, log_);
    watch(listeners_.back().fd());
    return address;
  }

  void watch(int fd, std::uint32_t events = EPOLLIN) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw Internal("epoll_ctl: " + error_text(errno));
  }

  // ---- Waiting

  bool is_crowded() const { return sharing_ + 1 > cpus_; }

  // Turns without a request before it sleeps: some tens of microseconds where it has a core, else a few yields.
  int idle_limit() const { return sharing_ == 0 ? 0 : is_crowded() ? 32 : 1024; }

  void rest() const { is_crowded() ? static_cast<void>(sched_yield()) : cpu_relax(); }

  void sleep() {
    for (Client& client : clients_) client.pipe->is_to_sleep(true);
    if (!any_request()) poll(std::max(Duration::zero(), next_deadline() - Clock::now()));
    for (Client& client : clients_) client.pipe->is_to_sleep(false);
  }

  bool any_request() {
    return std::ranges::any_of(clients_, [](Client& client) {
      try {
        return client.pipe->input().size() != client.unread;
      } catch (const Error&) {
        return true;
      }
    });
  }

  Deadline next_deadline() {
    Deadline next = next_snapshot_;
    for (const Acceptor& listener : listeners_) next = std::min(next, listener.next_deadline());
    for (const Lost& lost : lost_) next = std::min(next, lost.since + options_.lease);
    for (const Client& client : clients_) {
      if (client.waits_since && !client.stall_told && options_.stall_warning > Duration::zero()) {
        next = std::min(next, *client.waits_since + options_.stall_warning);
      }
    }
    if (snapshot_.child > 0) next = std::min(next, deadline_after(kSnapshotLook));
    return next;
  }

  void poll(Duration timeout) {
    std::array<epoll_event, 64> events;
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(std::min<Duration>(timeout, 60s)).count();
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(limit));
    if (count < 0 && errno != EINTR) throw Internal("epoll_wait: " + error_text(errno));
    for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.fd);
    accept();
    look_at_clock();
  }

  void handle(int fd) {
    if (fd == bell_.get()) {
      std::uint64_t rings = 0;
      (void)!read(fd, &rings, sizeof rings);
    }
    for (Client& client : clients_) {
      if (client.pipe->fd() == fd) client.pipe->notice_event();
    }
  }

  void accept() {
    for (Acceptor& listener : listeners_) {
      const bool shares = listener.address().kind == Address::Kind::unix_abstract;
      while (auto peer = listener.accept_now()) {
        try {
          Client client{.pipe = make_server_pipe(std::move(peer->socket), shares, deadline_after(kShareTime)),
                        .shares_memory = shares};
          watch(client.pipe->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
          clients_.push_back(std::move(client));
          if (shares) ++sharing_;
        } catch (const Error& error) {
          log_.warning(std::string("cannot serve a worker: ") + error.what());
        }
      }
    }
  }

  // What happens because time has passed.
  void look_at_clock() {
    const TimePoint now = Clock::now();
    std::erase_if(lost_, [&](const Lost& lost) {
      if (now < lost.since + options_.lease) return false;
      shard_.forget(static_cast<std::uint32_t>(lost.worker));
      log_.warning("worker " + std::to_string(lost.worker) + " is lost: nobody waits for it any longer");
      return true;
    });
    for (Client& client : clients_) tell_stall(client, now);
    if (now >= next_snapshot_) {
      next_snapshot_ = now + options_.interval;
      if (snapshot_.child < 0 && !snapshot_.error && !options_.snapshot.empty()) {
        snapshot_ = {.child = start_snapshot(shard_, options_.snapshot), .folder = options_.snapshot, .error = {}};
        is_snapshot_own_ = true;
      }
    }
    if (snapshot_.child > 0) reap();
  }

  void tell_stall(Client& client, TimePoint now) {
    if (!client.waits_since || client.stall_told || options_.stall_warning <= Duration::zero()) return;
    if (now < *client.waits_since + options_.stall_warning) return;
    client.stall_told = true;
    const int slowest = shard_.slowest();
    if (slowest < 0 || client.is_answering) return;
    log_.warning("stalled: worker " + std::to_string(slowest) + " keeps worker " + std::to_string(client.worker) +
                 " waiting, which is ahead by as many clocks as its table allows");
  }

  void reap() {
    int status = 0;
    if (waitpid(snapshot_.child, &status, WNOHANG) == 0) return;
    snapshot_.child = -1;
    snapshot_.error = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    if (!std::exchange(is_snapshot_own_, false)) return;
    if (*snapshot_.error != 0) {
      log_.error("the snapshot in " + snapshot_.folder + " has failed: " + error_text(*snapshot_.error));
    }
    snapshot_.error.reset();
  }

  // ---- Requests

  bool serve_all() {
    bool any = false;
    for (std::size_t i = 0; i < clients_.size();) {
      try {
        any = serve(clients_[i]) || any;
        ++i;
      } catch (const Error& error) {
        drop(i, error);
      }
    }
    return any;
  }

  void drop(std::size_t i, const Error& error) {
    Client client = std::move(clients_[i]);
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
    if (client.shares_memory) --sharing_;
    if (client.is_answering) snapshot_.error.reset();
    if (error.code() != StatusCode::peer_lost) {
      log_.warning("drops the connection of worker " + std::to_string(client.worker) + ": " + error.what());
    }
    const auto is_same = [&](const Client& other) { return other.worker == client.worker; };
    if (client.worker >= 0 && !client.has_left && std::ranges::none_of(clients_, is_same)) {
      lost_.push_back({.worker = client.worker, .since = Clock::now()});
    }
  }

  // Answers what it can; false if there was nothing to answer.
  bool serve(Client& client) {
    int answered = 0;
    for (; answered < kRequestsPerTurn; ++answered) {
      const std::span<const std::byte> input = client.pipe->input();
      client.unread = input.size();
      if (input.size() < kPsHeaderBytes) break;
      const PsRequest request = parse_request(input.first<kPsHeaderBytes>());
      const std::size_t frame = ps_frame_bytes(request.bytes);
      if (input.size() < frame) break;
      if (!answer(client, request, input.subspan(kPsHeaderBytes, request.bytes))) break;
      client.waits_since.reset();
      client.pipe->consume(frame);
    }
    client.pipe->flush();
    return answered > 0;
  }

  // False: not yet.
  bool answer(Client& client, const PsRequest& request, std::span<const std::byte> payload) {
    try {
      if (request.shard != shard_.number()) throw InvalidArgument("this server does not have that shard");
      if (request.op == PsOp::snapshot) return answer_snapshot(client, request, payload);
      if (!shard_.is_ready(request)) return wait_for_others(client);
      const std::size_t bytes = shard_.answer_bytes(request);
      std::byte* const to = client.pipe->room(ps_frame_bytes(bytes));
      if (to == nullptr) return false;
      PsAnswer result;
      try {
        result = request.op == PsOp::restore ? restore(request, payload)
                                             : shard_.apply(request, payload, {to + kPsHeaderBytes, bytes});
      } catch (...) {
        client.pipe->commit(0);
        throw;
      }
      std::memcpy(to, &result, sizeof result);
      client.pipe->commit(ps_frame_bytes(bytes));
      note(client, request);
      return true;
    } catch (const Error& error) {
      if (error.code() == StatusCode::internal) throw;  // it does not speak the protocol
      return answer_error(client, request, error);
    } catch (const std::bad_alloc&) {
      return answer_error(client, request, Internal("the server is out of memory"));
    }
  }

  bool answer_error(Client& client, const PsRequest& request, const Error& error) {
    const std::string_view text(error.what());
    std::byte* const to = client.pipe->room(ps_frame_bytes(text.size()));
    if (to == nullptr) return false;
    const PsAnswer result{.status = static_cast<std::uint32_t>(error.code()),
                          .sequence = request.sequence,
                          .bytes = static_cast<std::uint32_t>(text.size())};
    std::memcpy(to, &result, sizeof result);
    std::memcpy(to + kPsHeaderBytes, text.data(), text.size());
    client.pipe->commit(ps_frame_bytes(text.size()));
    return true;
  }

  void note(Client& client, const PsRequest& request) {
    if (request.op == PsOp::leave) client.has_left = true;
    if (request.op != PsOp::hello) return;
    client.worker = static_cast<int>(request.worker);
    std::erase_if(lost_, [&](const Lost& lost) { return lost.worker == client.worker; });
  }

  static bool wait_for_others(Client& client) {
    if (!client.waits_since) {
      client.waits_since = Clock::now();
      client.stall_told = false;
    }
    return false;
  }

  static std::string folder_in(std::span<const std::byte> payload) {
    std::string folder(reinterpret_cast<const char*>(payload.data()), payload.size());
    if (folder.empty() || folder.find('\0') != std::string::npos) throw InvalidArgument("a snapshot needs a folder");
    return folder;
  }

  PsAnswer restore(const PsRequest& request, std::span<const std::byte> payload) {
    restore_snapshot(shard_, folder_in(payload));
    return {.sequence = request.sequence};
  }

  // Answered when the child has written the file. A second request waits until then, and has its own child.
  bool answer_snapshot(Client& client, const PsRequest& request, std::span<const std::byte> payload) {
    if (!client.is_answering) {
      if (snapshot_.child > 0 || snapshot_.error) return wait_for_others(client);
      snapshot_ = {.child = start_snapshot(shard_, folder_in(payload)), .folder = folder_in(payload), .error = {}};
      client.is_answering = true;
    }
    if (!snapshot_.error) return wait_for_others(client);
    if (*snapshot_.error != 0) {
      const Internal failure("the snapshot in " + snapshot_.folder + " has failed: " + error_text(*snapshot_.error));
      if (!answer_error(client, request, failure)) return false;
    } else {
      std::byte* const to = client.pipe->room(kPsHeaderBytes);
      if (to == nullptr) return false;
      const PsAnswer result{.sequence = request.sequence};
      std::memcpy(to, &result, sizeof result);
      client.pipe->commit(kPsHeaderBytes);
    }
    client.is_answering = false;
    snapshot_.error.reset();
    return true;
  }

  // The last answers are on their way.
  void finish() {
    const Deadline deadline = deadline_after(kShareTime);
    const auto has_output = [](const Client& client) { return client.pipe->has_output(); };
    while (Clock::now() < deadline && std::ranges::any_of(clients_, has_output)) {
      for (Client& client : clients_) {
        try {
          client.pipe->flush();
        } catch (const Error&) {  // it needs no answer any more
        }
      }
      poll(1ms);
    }
  }

  const ServerOptions options_;
  const Log& log_;
  Shard shard_;
  FileDescriptor epoll_;
  FileDescriptor bell_;
  const int cpus_;
  std::vector<Acceptor> listeners_;
  std::vector<Client> clients_;
  int sharing_ = 0;  // clients that share memory
  std::vector<Lost> lost_;
  Snapshot snapshot_;
  bool is_snapshot_own_ = false;  // it was due, nobody has asked for it
  Deadline next_snapshot_ = Deadline::max();
  std::atomic<bool> stops_{false};
};

ParameterServer::ParameterServer(const ServerOptions& options, const Store& store, const JobKey& key, const Log& log)
    : state_(std::make_unique<State>(options, store, key, log)) {}

ParameterServer::~ParameterServer() = default;

void ParameterServer::run() { state_->run(); }

void ParameterServer::stop() noexcept { state_->stop(); }

}  // namespace hvd
