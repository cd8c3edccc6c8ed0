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
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/futex.h"
#include "core/base/process.h"
#include "core/net/byte_codec.h"
#include "core/net/job_number.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/replication.h"
#include "parameters/shard.h"
#include "parameters/snapshot.h"

namespace hvd {

namespace {

constexpr Duration kShareTime = std::chrono::seconds(2);  // for passing memory to a worker
constexpr Duration kSnapshotLook = std::chrono::milliseconds(10);
constexpr Duration kAcceptNap = std::chrono::milliseconds(1);
constexpr Duration kStoreLook = std::chrono::seconds(1);
constexpr int kRequestsPerTurn = 64;  // of one connection, before the others have theirs
constexpr int kTurnsPerPoll = 64;     // while busy: sockets are looked at once in so many turns

constexpr int kNone = -1;
constexpr std::size_t kMostPart = std::size_t{1} << 32;  // of a state: what a clock's pushes may be

// An answer that waits until the shard's copy has what it answers.
struct Held {
  std::uint64_t until;     // Replication::copied()
  std::uint64_t position;  // where it begins, in the pipe
};

// A connection of a worker, or of the other server that has a shard.
struct Client {
  std::unique_ptr<Pipe> pipe;
  bool shares_memory = false;
  int shard = kNone;
  int worker = kNone;      // since it has said hello
  bool is_source = false;  // the other server, which sends its shard
  Bytes part{};            // of the shard's state, until it is whole
  std::deque<Held> held{};
  bool has_left = false;
  bool is_answering = false;               // has to answer the request in front when a snapshot is complete
  std::size_t lacks_room = 0;              // bytes, for the answer to the request in front
  std::size_t unread = 0;                  // bytes that could not be answered yet
  std::optional<TimePoint> waits_since{};  // its request in front waits
  const char* waits_for = "";              // why, if it is not for slower workers
  bool stall_told = false;
};

struct Lost {
  int shard;
  int worker;
  TimePoint since;
};

enum class Role {
  first,    // answers the workers
  filling,  // receives the state
  copy,     // has the state, and goes on if the other server is lost
  none,     // has had it: the other server has gone on without it
};

// A shard that this server has, alone or with another one.
struct Holding {
  Holding(std::uint32_t number, std::uint32_t shards, std::size_t memory, std::uint64_t job, Role role_at_first)
      : shard(number, shards, memory, job), role(role_at_first) {}

  Shard shard;
  Role role;
  ShardGeneration generation{};
  std::unique_ptr<Replication> replication{};  // first: null if there is to be no copy
  std::optional<Deadline> opens{};             // first: at the start nobody is answered until there is a copy
};

// A child that writes a snapshot.
struct Snapshot {
  pid_t child = -1;
  std::string folder;
  std::optional<std::string> failure{};  // once it has ended: empty, or why there is none
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
        store_(store),
        key_(key),
        log_(log),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        cpus_(static_cast<int>(count_cpus())) {
    if (!epoll_ || !bell_) throw Internal("epoll: " + error_text(errno));
    if (options.copies > 1 && options.servers < 2) throw InvalidArgument("two copies of a shard need two servers");
    watch(bell_.get());
    const std::int64_t start = store_.add(ps_keys::starts(options.server), 1);
    hold_own_shard(start == 1);
    ServerPlace place{.local = {}, .remote = {}, .host_key = options.host_key};
    place.remote = listen(Listener::tcp(options.local_host));
    if (options.shares_memory) place.local = listen(Listener::unix_abstract());
    store_.set(ps_keys::place(options.server, start), place.to_string());
  }

  ~State() {
    if (snapshot_.child > 0) {
      kill(snapshot_.child, SIGKILL);
      waitpid(snapshot_.child, nullptr, 0);
    }
  }

  void run() {
    try {
      serve_until_over();
    } catch (...) {  // nobody waits for a server that has failed
      clients_.clear();
      listeners_.clear();
      throw;
    }
  }

  void serve_until_over() {
    next_snapshot_ = options_.interval > Duration::zero() ? deadline_after(options_.interval) : Deadline::max();
    int idle_turns = 0;
    for (int turn = 0; !stops_; ++turn) {
      const bool is_busy = serve_all();
      replicate();
      if (is_busy) idle_turns = 0;
      if (is_over()) break;
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

  // ---- Shards

  // A server that is started again has nothing: it gets what it had from the server that has gone on, or, where there
  // is one copy, from its last snapshot.
  void hold_own_shard(bool is_first_start) {
    const auto number = static_cast<std::uint32_t>(options_.server);
    const bool has_copy = options_.copies > 1;
    if (has_copy && !is_first_start) return;
    Holding& own =
        holdings_.try_emplace(options_.server, number, shards(), options_.memory, job_number(key_), Role::first)
            .first->second;
    if (has_copy) {
      own.opens = deadline_after(options_.start_timeout);
      copy_to_other(own);
    } else if (!is_first_start && restore_own_snapshot(own.shard, options_.snapshot)) {
      log_.warning("was started again, from the last snapshot in " + options_.snapshot +
                   ": updates since then are lost");
    }
  }

  std::uint32_t shards() const { return static_cast<std::uint32_t>(options_.servers); }

  void copy_to_other(Holding& holding) {
    const int number = static_cast<int>(holding.shard.number());
    const int peer = number == options_.server ? (number + 1) % options_.servers : number;
    holding.replication =
        std::make_unique<Replication>(holding.shard, options_.server, peer, options_.lease, store_, key_, log_);
  }

  // Sends what copies lack, and releases the answers that have waited for them.
  void replicate() {
    for (auto& [number, holding] : holdings_) {
      if (holding.role != Role::first || !holding.replication) continue;
      try {
        if (holding.replication->progress(holding.generation)) {
          watch(holding.replication->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
        }
        if (holding.replication->is_in_step()) holding.opens.reset();
        release_answers(number, *holding.replication);
      } catch (const PeerLost& error) {
        if (holding.replication->is_refused()) {
          step_down(number, holding);
        } else {
          go_on_alone(number, holding, error);
        }
      }
    }
  }

  void release_answers(int shard, const Replication& replication) {
    for (Client& client : clients_) {
      if (client.shard != shard || client.held.empty()) continue;
      const auto is_copied = [&](const Held& held) {
        return !replication.is_in_step() || held.until <= replication.copied();
      };
      if (!is_copied(client.held.front())) continue;
      while (!client.held.empty() && is_copied(client.held.front())) client.held.pop_front();
      client.pipe->hold_behind(client.held.empty() ? kHoldNothing : client.held.front().position);
      flush(client);
    }
  }

  static void flush(Client& client) {
    try {
      client.pipe->flush();
    } catch (const PeerLost&) {  // serve() finds out
    }
  }

  // The server that has the copy is lost; unless it takes this one for lost, and was faster.
  void go_on_alone(int number, Holding& holding, const Error& error) {
    if (claim(holding)) {
      if (!holding.shard.is_over()) {
        log_.warning("shard " + std::to_string(number) + " has no copy any more: " + error.what());
      }
      return release_answers(number, *holding.replication);
    }
    step_down(number, holding);
  }

  // False also if the store does not answer: then nobody can know whether the other server has gone on.
  bool claim(Holding& holding) {
    try {
      return holding.generation.claim(store_, holding.shard.number());
    } catch (const Error& error) {
      log_.warning(std::string("cannot ask who is to go on with a shard: ") + error.what());
      return false;
    }
  }

  // Its workers' connections close without the answers that were held back.
  void step_down(int number, Holding& holding) {
    log_.warning("shard " + std::to_string(number) + " goes on at another server");
    holding.role = Role::none;
    holding.replication.reset();
    for (std::size_t i = 0; i < clients_.size();) {
      if (clients_[i].shard == number) {
        erase(i);
      } else {
        ++i;
      }
    }
  }

  // Whether this server answers for the shard: it does, or it has the copy and the other server is lost.
  bool answers_for(Holding& holding) {
    const int number = static_cast<int>(holding.shard.number());
    const auto is_its_source = [&](const Client& other) { return other.is_source && other.shard == number; };
    if (holding.role != Role::copy || std::ranges::any_of(clients_, is_its_source)) return holding.role == Role::first;
    if (!claim(holding)) {
      holding.role = Role::none;
      return false;
    }
    log_.warning("goes on with shard " + std::to_string(number) + ", whose server is lost");
    holding.role = Role::first;
    holding.shard.limit_memory(options_.memory);
    copy_to_other(holding);
    for (const std::uint32_t worker : holding.shard.present_workers()) {
      lost_.push_back({.shard = number, .worker = static_cast<int>(worker), .since = Clock::now()});
    }
    return true;
  }

  bool is_over() const {
    const auto is_done = [](const auto& entry) {
      return entry.second.role == Role::none || entry.second.shard.is_over();
    };
    const auto is_held = [](const Client& client) { return !client.held.empty(); };
    return !holdings_.empty() && std::ranges::all_of(holdings_, is_done) && std::ranges::none_of(clients_, is_held);
  }

  // ---- Connections

  std::string listen(Listener listener) {
    const std::string address = listener.address().to_string();
    listeners_.emplace_back(std::move(listener), key_, Purpose::parameters, log_);
    watch(listeners_.back().fd());
    return address;
  }

  void watch(int fd, std::uint32_t events = EPOLLIN) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw Internal("epoll_ctl: " + error_text(errno));
  }

  void accept() {
    for (Acceptor& listener : listeners_) {
      const bool shares = listener.address().kind == Address::Kind::unix_abstract;
      while (auto peer = accept_now(listener)) {
        try {
          Client client{
              .pipe = make_server_pipe(std::move(peer->socket), shares, options_.lease, deadline_after(kShareTime)),
              .shares_memory = shares};
          watch(client.pipe->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
          clients_.push_back(std::move(client));
          if (shares) ++sharing_;
        } catch (const std::exception& error) {
          log_.warning(std::string("cannot serve a worker: ") + error.what());
        }
      }
    }
  }

  // Without descriptors for another connection, those that there are live on.
  std::optional<Peer> accept_now(Acceptor& listener) {
    try {
      return listener.accept_now();
    } catch (const Internal& error) {
      if (!std::exchange(is_accept_told_, true)) {
        log_.error(std::string("accepts no more connections for now: ") + error.what());
      }
      std::this_thread::sleep_for(kAcceptNap);  // the listener stays readable
      return std::nullopt;
    }
  }

  Client erase(std::size_t i) {
    Client client = std::move(clients_[i]);
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
    if (client.shares_memory) --sharing_;
    if (client.is_answering) {
      snapshot_.failure.reset();
      is_snapshot_own_ = snapshot_.child > 0;  // nobody else will take note of its end
    }
    return client;
  }

  void drop(std::size_t i, const Error& error) {
    const Client client = erase(i);
    const std::string who = client.is_source ? "another server" : "worker " + std::to_string(client.worker);
    if (error.code() != StatusCode::peer_lost) log_.warning("drops the connection of " + who + ": " + error.what());
    if (client.is_source) return lose_source(client.shard);
    const auto is_same = [&](const Client& other) {
      return other.worker == client.worker && other.shard == client.shard;
    };
    if (client.worker != kNone && !client.has_left && std::ranges::none_of(clients_, is_same)) {
      lost_.push_back({.shard = client.shard, .worker = client.worker, .since = Clock::now()});
    }
  }

  // A copy that is not whole is none.
  void lose_source(int shard) {
    const auto found = holdings_.find(shard);
    if (found != holdings_.end() && found->second.role == Role::filling) found->second.role = Role::none;
  }

  // ---- Waiting

  bool is_oversubscribed() const { return sharing_ + 1 > cpus_; }

  // Turns without a request before it sleeps: some tens of microseconds where it has a core, else a few yields.
  int idle_limit() const { return sharing_ == 0 ? 0 : is_oversubscribed() ? 32 : 1024; }

  void rest() const { is_oversubscribed() ? static_cast<void>(sched_yield()) : cpu_relax(); }

  void sleep() {
    for (Client& client : clients_) client.pipe->is_to_sleep(true);
    if (!any_request()) poll(std::max(Duration::zero(), next_deadline() - Clock::now()));
    for (Client& client : clients_) client.pipe->is_to_sleep(false);
  }

  bool any_request() {
    return std::ranges::any_of(clients_, [](Client& client) {
      try {
        return client.pipe->input().size() != client.unread || has_got_room(client);
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
      next = std::min(next, client.pipe->next_look());
      if (client.waits_since && !client.stall_told && options_.stall_warning > Duration::zero()) {
        next = std::min(next, *client.waits_since + options_.stall_warning);
      }
    }
    for (const auto& [number, holding] : holdings_) {
      if (holding.replication) next = std::min(next, holding.replication->next_deadline());
      if (holding.opens) next = std::min(next, *holding.opens);
    }
    if (snapshot_.child > 0) next = std::min(next, deadline_after(kSnapshotLook));
    if (is_deserted()) next = std::min(next, next_store_look_);
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
    for (const auto& [number, holding] : holdings_) {
      if (holding.replication && holding.replication->fd() == fd) holding.replication->notice_event();
    }
  }

  // What happens because time has passed.
  void look_at_clock() {
    const TimePoint now = Clock::now();
    forget_lost_workers(now);
    for (auto& [number, holding] : holdings_) {
      if (!holding.opens || now < *holding.opens) continue;
      holding.opens.reset();
      go_on_alone(number, holding, Timeout("no other server has come to keep it"));
    }
    for (Client& client : clients_) {
      client.pipe->look_for_silence(now);
      tell_stall(client, now);
    }
    if (now >= next_snapshot_) {
      next_snapshot_ = now + options_.interval;
      write_own_snapshot();
    }
    if (snapshot_.child > 0) reap();
    if (is_deserted() && now >= next_store_look_) look_at_store(now);
  }

  bool is_deserted() const { return clients_.empty() && lost_.empty(); }

  // Without the job's store no worker finds this server any longer: it would wait for ever where nobody ends it.
  void look_at_store(TimePoint now) {
    next_store_look_ = now + kStoreLook;
    try {
      store_.add(ps_keys::starts(options_.server), 0);
    } catch (const Error&) {
      log_.info("ends: the job's store is gone, and no worker is connected");
      stops_ = true;
    }
  }

  void forget_lost_workers(TimePoint now) {
    std::erase_if(lost_, [&](const Lost& lost) {
      const auto found = holdings_.find(lost.shard);
      if (found == holdings_.end() || found->second.role != Role::first) return true;
      if (now < lost.since + options_.lease) return false;
      Holding& holding = found->second;
      const PsRequest request{.op = PsOp::forget, .worker = static_cast<std::uint32_t>(lost.worker)};
      if (holding.replication && !holding.replication->prepare(request, {})) return false;
      holding.shard.apply(request, {}, {});
      if (holding.replication) holding.replication->forward();
      log_.warning("worker " + std::to_string(lost.worker) + " is lost: nobody waits for it any longer");
      return true;
    });
  }

  void tell_stall(Client& client, TimePoint now) {
    if (!client.waits_since || client.stall_told || options_.stall_warning <= Duration::zero()) return;
    if (now < *client.waits_since + options_.stall_warning) return;
    client.stall_told = true;
    const std::string who = "stalled: worker " + std::to_string(client.worker) + " waits for ";
    if (*client.waits_for != '\0') return log_.warning(who + client.waits_for);
    const auto found = holdings_.find(client.shard);
    const int slowest = found == holdings_.end() ? kNone : found->second.shard.slowest();
    if (slowest == kNone) return;
    log_.warning("stalled: worker " + std::to_string(slowest) + " keeps worker " + std::to_string(client.worker) +
                 " waiting, which is ahead by as many clocks as its table allows");
  }

  // ---- Snapshots

  void write_own_snapshot() {
    if (snapshot_.child > 0 || snapshot_.failure || options_.snapshot.empty()) return;
    std::vector<const Shard*> own;
    for (const auto& [number, holding] : holdings_) {
      if (holding.role == Role::first) own.push_back(&holding.shard);
    }
    if (own.empty()) return;
    try {
      snapshot_ = {.child = start_snapshot(own, options_.snapshot), .folder = options_.snapshot, .failure = {}};
      is_snapshot_own_ = true;
    } catch (const Unsupported& error) {
      log_.error(error.what());
    }
  }

  void reap() {
    int status = 0;
    const pid_t ended = waitpid(snapshot_.child, &status, WNOHANG);
    if (ended == 0) return;
    snapshot_.child = kNone;
    snapshot_.failure = ended < 0             ? error_text(errno)
                        : WIFSIGNALED(status) ? "its process was killed by signal " + std::to_string(WTERMSIG(status))
                        : WEXITSTATUS(status) != 0 ? error_text(WEXITSTATUS(status))
                                                   : "";
    if (!std::exchange(is_snapshot_own_, false)) return;
    if (!snapshot_.failure->empty()) {
      log_.error("the snapshot in " + snapshot_.folder + " has failed: " + *snapshot_.failure);
    }
    snapshot_.failure.reset();
  }

  static std::string folder_in(std::span<const std::byte> payload) {
    std::string folder(reinterpret_cast<const char*>(payload.data()), payload.size());
    if (folder.empty() || folder.find('\0') != std::string::npos) throw InvalidArgument("a snapshot needs a folder");
    return folder;
  }

  // Answered when the child has written the file. A second request waits until then, and has its own child.
  bool answer_snapshot(Client& client, Holding& holding, const PsRequest& request, std::span<const std::byte> payload) {
    if (!client.is_answering) {
      if (snapshot_.child > 0 || snapshot_.failure) return wait_for_others(client, "a snapshot");
      snapshot_ = {
          .child = start_snapshot({&holding.shard}, folder_in(payload)), .folder = folder_in(payload), .failure = {}};
      client.is_answering = true;
    }
    if (!snapshot_.failure) return wait_for_others(client, "a snapshot");
    const std::string text = "the snapshot in " + snapshot_.folder + " has failed: " + *snapshot_.failure;
    const bool is_written = snapshot_.failure->empty();
    if (!(is_written ? answer_plainly(client, request) : answer_error(client, request, Internal(text)))) return false;
    client.is_answering = false;
    snapshot_.failure.reset();
    return true;
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
        any = true;  // others may have waited for its snapshot
      }
    }
    return any;
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
      if (client.is_source || request.op == PsOp::follow) return take_from_source(client, request, payload);
      if (is_between_servers(request.op)) throw Internal("a worker sends what only servers send");
      return answer_worker(client, request, payload);
    } catch (const Error& error) {
      if (error.code() == StatusCode::internal) throw;  // it does not speak the protocol
      return answer_error(client, request, error);
    } catch (const std::bad_alloc&) {
      return answer_error(client, request, Internal("the server is out of memory"));
    }
  }

  bool answer_worker(Client& client, const PsRequest& request, std::span<const std::byte> payload) {
    const auto found = holdings_.find(static_cast<int>(request.shard));
    if (found == holdings_.end() || !answers_for(found->second)) {
      throw Unsupported("server " + std::to_string(options_.server) + " does not answer for shard " +
                        std::to_string(request.shard));
    }
    Holding& holding = found->second;
    if (holding.opens) return wait_for_others(client, "a second server, which is to keep the copy of its shard");
    if (request.op == PsOp::snapshot) return answer_snapshot(client, holding, request, payload);
    if (request.op == PsOp::stats) return answer_text(client, request, StatusCode::ok, stats_of(holding));
    if (!holding.shard.is_ready(request)) {
      return wait_for_others(client, holding.shard.has_values(request) ? "" : "rank 0's first values of a table");
    }
    const std::size_t bytes = holding.shard.answer_bytes(request);
    std::byte* const to = room_for(client, bytes);
    if (to == nullptr) return false;
    const bool changes = changes_shard(request.op);
    if (changes && holding.replication && !holding.replication->prepare(for_copy(request), payload)) {
      client.pipe->commit(0);
      return false;
    }
    PsAnswer result;
    try {
      result = request.op == PsOp::restore ? restore(holding, request, payload)
                                           : holding.shard.apply(request, payload, {to + kPsHeaderBytes, bytes});
    } catch (...) {
      client.pipe->commit(0);
      if (holding.replication) holding.replication->cancel();
      throw;
    }
    std::memcpy(to, &result, sizeof result);
    const std::uint64_t begin = client.pipe->committed();
    client.pipe->commit(ps_frame_bytes(bytes));
    if (changes && holding.replication) hold_until_copied(client, *holding.replication, begin);
    note(client, request);
    return true;
  }

  static bool changes_shard(PsOp op) {
    return is_numbered(op) || op == PsOp::hello || op == PsOp::open_table || op == PsOp::leave || op == PsOp::fill;
  }

  static PsRequest for_copy(PsRequest request) {
    if (request.op == PsOp::push_pull) request.op = PsOp::push;
    return request;
  }

  static void hold_until_copied(Client& client, Replication& replication, std::uint64_t begin) {
    replication.forward();
    if (!replication.is_in_step()) return;
    if (client.held.empty()) client.pipe->hold_behind(begin);
    client.held.push_back({.until = replication.forwarded(), .position = begin});
  }

  PsAnswer restore(Holding& holding, const PsRequest& request, std::span<const std::byte> payload) {
    const std::string folder = folder_in(payload);
    if (!holding.replication) {
      restore_snapshot(holding.shard, folder);
      return {.sequence = request.sequence};
    }
    // The copy must not go on with less, should this server be lost meanwhile.
    if (holding.replication->is_in_step() && !claim(holding)) throw Aborted("another server answers for this shard");
    holding.replication->begin_anew();
    restore_snapshot(holding.shard, folder);
    return {.sequence = request.sequence};
  }

  void note(Client& client, const PsRequest& request) {
    if (request.op == PsOp::leave) client.has_left = true;
    if (request.op != PsOp::hello) return;
    client.worker = static_cast<int>(request.worker);
    client.shard = static_cast<int>(request.shard);
    std::erase_if(lost_, [&](const Lost& lost) { return lost.worker == client.worker && lost.shard == client.shard; });
  }

  // From the server that is the first of a shard.
  bool take_from_source(Client& client, const PsRequest& request, std::span<const std::byte> payload) {
    if (!can_answer_plainly(client)) return false;
    if (request.op == PsOp::follow) {
      begin_copy(client, request);
    } else {
      const auto found = holdings_.find(client.shard);
      if (found == holdings_.end() || found->second.role == Role::first) throw Internal("an earlier copy goes on");
      Holding& copy = found->second;
      if (request.op == PsOp::state) {
        if (client.part.size() + payload.size() > kMostPart) throw Internal("a part of a state without end");
        client.part.insert(client.part.end(), payload.begin(), payload.end());
        if ((request.flags & kGoesOn) == 0) copy.shard.read_state(std::exchange(client.part, {}));
      } else if (request.op == PsOp::in_step) {
        if (payload.size() != sizeof copy.generation.number) throw Internal("a generation of another size");
        std::memcpy(&copy.generation.number, payload.data(), payload.size());
        copy.role = Role::copy;
      } else {
        copy.shard.apply(request, payload, {});
      }
    }
    return answer_plainly(client, request);
  }

  void begin_copy(Client& client, const PsRequest& request) {
    const int number = static_cast<int>(request.shard);
    if (options_.copies < 2 || request.shard >= shards()) throw InvalidArgument("no such shard is to be copied here");
    const auto found = holdings_.find(number);
    if (found != holdings_.end()) {
      if (found->second.role == Role::first) throw Aborted("this server answers for that shard");
      holdings_.erase(found);
    }
    for (Client& other : clients_) {
      if (&other != &client && other.is_source && other.shard == number) other.shard = kNone;  // an earlier attempt
    }
    holdings_.try_emplace(number, request.shard, shards(), std::size_t{0}, job_number(key_), Role::filling);
    client.is_source = true;
    client.shard = number;
    client.part.clear();
  }

  // For an answer with a payload of so many bytes; null if there is none yet.
  static std::byte* room_for(Client& client, std::size_t payload) {
    const std::size_t bytes = ps_frame_bytes(payload);
    std::byte* const to = client.pipe->room(bytes);
    client.lacks_room = to == nullptr ? bytes : 0;
    return to;
  }

  static bool has_got_room(Client& client) {
    if (client.lacks_room == 0 || client.pipe->room(client.lacks_room) == nullptr) return false;
    client.pipe->commit(0);
    return true;
  }

  static bool can_answer_plainly(Client& client) {
    std::byte* const to = room_for(client, 0);
    if (to != nullptr) client.pipe->commit(0);
    return to != nullptr;
  }

  static bool answer_plainly(Client& client, const PsRequest& request) {
    return answer_text(client, request, StatusCode::ok, "");
  }

  static std::string stats_of(const Holding& holding) {
    const bool has_copy = holding.replication && holding.replication->is_in_step();
    return "- copies " + std::to_string(has_copy ? 2 : 1) + "\n" + holding.shard.stats();
  }

  static bool answer_error(Client& client, const PsRequest& request, const Error& error) {
    return answer_text(client, request, error.code(), error.what());
  }

  static bool answer_text(Client& client, const PsRequest& request, StatusCode code, std::string_view all) {
    const std::string_view text = all.substr(0, kMaxPsPayload);
    std::byte* const to = room_for(client, text.size());
    if (to == nullptr) return false;
    const PsAnswer result{.status = static_cast<std::uint32_t>(code),
                          .sequence = request.sequence,
                          .bytes = static_cast<std::uint32_t>(text.size())};
    std::memcpy(to, &result, sizeof result);
    std::memcpy(to + kPsHeaderBytes, text.data(), text.size());
    client.pipe->commit(ps_frame_bytes(text.size()));
    return true;
  }

  static bool wait_for_others(Client& client, const char* what = "") {
    client.waits_for = what;
    if (!client.waits_since) {
      client.waits_since = Clock::now();
      client.stall_told = false;
    }
    return false;
  }

  // The last answers, and what copies lack, are on their way.
  void finish() {
    const Deadline deadline = deadline_after(kShareTime);
    const auto has_output = [](const Client& client) { return client.pipe->has_output(); };
    const auto is_copying = [](const auto& entry) {
      const auto& replication = entry.second.replication;
      return replication && replication->is_in_step() && replication->copied() < replication->forwarded();
    };
    while (Clock::now() < deadline &&
           (std::ranges::any_of(clients_, has_output) || std::ranges::any_of(holdings_, is_copying))) {
      for (Client& client : clients_) flush(client);
      replicate();
      poll(1ms);
    }
  }

  const ServerOptions options_;
  const Store store_;
  const JobKey key_;
  const Log& log_;
  FileDescriptor epoll_;
  FileDescriptor bell_;
  const int cpus_;
  std::map<int, Holding> holdings_;  // by shard
  std::vector<Acceptor> listeners_;
  std::vector<Client> clients_;
  int sharing_ = 0;  // clients that share memory
  std::vector<Lost> lost_;
  Snapshot snapshot_;
  bool is_accept_told_ = false;
  bool is_snapshot_own_ = false;  // it was due, nobody has asked for it
  Deadline next_snapshot_ = Deadline::max();
  Deadline next_store_look_ = deadline_after(kStoreLook);
  std::atomic<bool> stops_{false};
};

ParameterServer::ParameterServer(const ServerOptions& options, const Store& store, const JobKey& key, const Log& log)
    : state_(std::make_unique<State>(options, store, key, log)) {}

ParameterServer::~ParameterServer() = default;

void ParameterServer::run() { state_->run(); }

void ParameterServer::stop() noexcept { state_->stop(); }

}  // namespace hvd
