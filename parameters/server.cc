#include "parameters/server.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/futex.h"
#include "core/base/process.h"
#include "core/net/byte_codec.h"
#include "parameters/held_shard.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/server_connection.h"
#include "parameters/shard_moves.h"
#include "parameters/snapshot_writer.h"

namespace hvd {

namespace {

constexpr Duration kShareTime = std::chrono::seconds(2);  // for passing memory to a worker
constexpr Duration kAcceptNap = std::chrono::milliseconds(1);
constexpr Duration kStoreInterval = std::chrono::seconds(1);
constexpr Duration kMetricsInterval = std::chrono::milliseconds(100);
constexpr int kRequestsPerTurn = 64;  // of one connection, before the others have theirs
constexpr int kTurnsPerPoll = 64;     // while busy: sockets are looked at once in so many turns

struct Lost {
  int shard;
  int worker;
  TimePoint since;
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
        snapshots_(options.snapshot, options.interval, log),
        cpus_(static_cast<int>(count_cpus())) {
    if (!epoll_ || !bell_) throw Internal("epoll: " + error_text(errno));
    if (options.copies > 1 && options.servers < 2) throw InvalidArgument("two copies of a shard need two servers");
    watch(bell_.get());
    const std::int64_t start = store_.add(ps_keys::starts(options.server), 1);
    hold_own_shards(start == 1);
    ServerPlace place{.local = {}, .remote = {}, .host_key = options.host_key};
    std::vector<Listener> listeners;
    listeners.push_back(Listener::tcp(options.local_host));
    place.remote = listeners.back().address().to_string();
    if (options.shares_memory) {
      listeners.push_back(Listener::unix_abstract());
      place.local = listeners.back().address().to_string();
    }
    acceptor_.emplace(std::move(listeners), key_, Purpose::parameters, log_);
    watch(acceptor_->fd());
    store_.set(ps_keys::place(options.server, start), place.to_string());
  }

  void run() {
    try {
      serve_until_over();
    } catch (...) {  // nobody waits for a server that has failed
      clients_.clear();
      acceptor_.reset();
      throw;
    }
  }

  void serve_until_over() {
    int idle_turns = 0;
    for (int turn = 0; !stops_; ++turn) {
      const bool is_busy = serve_all();
      replicate();
      if (is_busy) {
        idle_turns = 0;
        are_metrics_old_ = true;
      }
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
  void hold_own_shards(bool is_first_start) {
    if (options_.copies > 1) {
      if (is_first_start) hold(static_cast<std::uint32_t>(options_.server), Role::primary).begin_with_replica();
      return;
    }
    bool is_restored = false;
    for (int shard = 0; shard < options_.shards(); ++shard) {
      if (!moves_.is_here(shard)) continue;
      HeldShard& own = hold(static_cast<std::uint32_t>(shard), Role::primary);
      if (!is_first_start && own.restore_own(options_.snapshot)) is_restored = true;
    }
    if (!is_restored) return;
    log_.warning("was started again, from the last snapshot in " + options_.snapshot + ": updates since then are lost");
  }

  HeldShard& hold(std::uint32_t number, Role role) {
    return shards_.try_emplace(static_cast<int>(number), number, role, options_, store_, key_, log_).first->second;
  }

  HeldShard* find_shard(int number) {
    const auto found = shards_.find(number);
    return found == shards_.end() ? nullptr : &found->second;
  }

  // Sends what replicas lack, and releases the answers that have waited for them.
  void replicate() {
    for (auto& [number, held] : shards_) {
      if (!held.is_primary()) continue;
      if (held.progress()) watch(held.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
      release_answers(held);
    }
    std::erase_if(shards_, [](const auto& entry) { return entry.second.has_moved(); });
  }

  // If another server goes on with the shard, its workers' connections close without the answers that were held back.
  void release_answers(HeldShard& held) {
    if (!held.is_primary()) return close_connections(held.number());
    for (ServerConnection& client : clients_) {
      if (client.shard == held.number()) client.release(held);
    }
  }

  void close_connections(int shard) {
    for (std::size_t i = 0; i < clients_.size();) {
      if (clients_[i].shard == shard) {
        erase(i);
      } else {
        ++i;
      }
    }
  }

  // Whether this server answers for the shard: it does, or it has the replica and the primary is lost.
  bool answers_for(HeldShard& held) {
    const auto is_its_primary = [&](const ServerConnection& other) {
      return other.is_primary && other.shard == held.number();
    };
    if (held.role() != Role::replica || std::ranges::any_of(clients_, is_its_primary)) return held.is_primary();
    if (!held.take_over()) return false;
    expect_workers(held, Clock::now());
    return true;
  }

  // Those that do not come count as lost since then.
  void expect_workers(const HeldShard& held, TimePoint since) {
    for (const std::uint32_t worker : held.shard().workers().present()) {
      lost_.push_back({.shard = held.number(), .worker = static_cast<int>(worker), .since = since});
    }
  }

  // False while other servers have gone on with all shards of this one (Role::none): they need copies here.
  bool is_over() const {
    const auto has_ended = [](const auto& entry) { return entry.second.shard().is_over(); };
    const auto is_done = [](const auto& entry) { return entry.second.is_over(); };
    const auto holds_answers = [](const ServerConnection& client) { return client.holds_answers(); };
    return std::ranges::any_of(shards_, has_ended) && std::ranges::all_of(shards_, is_done) &&
           std::ranges::none_of(clients_, holds_answers);
  }

  // ---- Connections

  void watch(int fd, std::uint32_t events = EPOLLIN) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw Internal("epoll_ctl: " + error_text(errno));
  }

  void accept() {
    while (auto peer = accept_now()) {
      const bool shares = acceptor_->address(peer->listener).kind == Address::Kind::unix_abstract;
      try {
        ServerConnection client(
            make_server_pipe(std::move(peer->socket), shares, options_.lease, deadline_after(kShareTime)), shares);
        watch(client.pipe->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
        clients_.push_back(std::move(client));
        if (shares) ++sharing_;
      } catch (const std::exception& error) {
        log_.warning(std::string("cannot serve a worker: ") + error.what());
      }
    }
  }

  // Without descriptors for another connection, those that there are live on.
  std::optional<Peer> accept_now() {
    try {
      return acceptor_->accept_now();
    } catch (const Internal& error) {
      if (!std::exchange(is_accept_told_, true)) {
        log_.error(std::string("accepts no more connections for now: ") + error.what());
      }
      std::this_thread::sleep_for(kAcceptNap);  // its descriptor stays readable
      return std::nullopt;
    }
  }

  ServerConnection erase(std::size_t i) {
    ServerConnection client = std::move(clients_[i]);
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
    if (client.shares_memory) --sharing_;
    if (client.is_answering) snapshots_.abandon();
    return client;
  }

  void drop(std::size_t i, const Error& error) {
    const ServerConnection client = erase(i);
    const std::string who = client.is_primary ? "another server" : "worker " + std::to_string(client.worker);
    if (error.code() != StatusCode::peer_lost) log_.warning("drops the connection of " + who + ": " + error.what());
    if (client.is_primary) return lose_primary(client.shard);
    const auto is_same = [&](const ServerConnection& other) {
      return other.worker == client.worker && other.shard == client.shard;
    };
    if (client.worker != kNoNumber && !client.has_left && std::ranges::none_of(clients_, is_same)) {
      lost_.push_back({.shard = client.shard, .worker = client.worker, .since = Clock::now()});
    }
  }

  void lose_primary(int shard) {
    HeldShard* const held = find_shard(shard);
    if (held == nullptr) return;
    if (options_.copies > 1) return held->lose_primary();
    // The workers were there a moment ago, and may be busy with a long step.
    if (held->arrives()) return expect_workers(*held, deadline_after(options_.start_timeout));
    shards_.erase(shard);
  }

  // ---- Waiting

  bool is_oversubscribed() const { return sharing_ + 1 > cpus_; }

  // Turns without a request before it sleeps: some tens of microseconds where it has a core, else a few yields.
  int idle_limit() const { return sharing_ == 0 ? 0 : is_oversubscribed() ? 32 : 1024; }

  void rest() const { is_oversubscribed() ? static_cast<void>(sched_yield()) : cpu_relax(); }

  void sleep() {
    put_metrics(Clock::now());
    for (ServerConnection& client : clients_) client.pipe->is_to_sleep(true);
    if (!any_request()) poll(std::max(Duration::zero(), next_deadline() - Clock::now()));
    for (ServerConnection& client : clients_) client.pipe->is_to_sleep(false);
  }

  bool any_request() {
    return std::ranges::any_of(clients_, [](ServerConnection& client) {
      try {
        return client.pipe->input().size() != client.unread || client.has_got_room();
      } catch (const Error&) {
        return true;
      }
    });
  }

  Deadline next_deadline() {
    Deadline next = snapshots_.next_deadline();
    if (are_metrics_old_) next = std::min(next, next_metrics_);
    next = std::min(next, acceptor_->next_deadline());
    for (const Lost& lost : lost_) next = std::min(next, lost.since + options_.lease);
    for (const ServerConnection& client : clients_) {
      next = std::min(next, client.pipe->next_look());
      if (client.waits_since && !client.stall_told && options_.stall_warning > Duration::zero()) {
        next = std::min(next, *client.waits_since + options_.stall_warning);
      }
    }
    for (const auto& [number, held] : shards_) next = std::min(next, held.next_deadline());
    next = std::min(next, moves_.next_check());
    if (is_deserted()) next = std::min(next, next_store_check_);
    return next;
  }

  void poll(Duration timeout) {
    std::array<epoll_event, 64> events;
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(std::min<Duration>(timeout, 60s)).count();
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(limit));
    if (count < 0 && errno != EINTR) throw Internal("epoll_wait: " + error_text(errno));
    for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.fd);
    accept();
    check_time();
  }

  void handle(int fd) {
    if (fd == bell_.get()) {
      std::uint64_t rings = 0;
      (void)!read(fd, &rings, sizeof rings);
    }
    for (ServerConnection& client : clients_) {
      if (client.pipe->fd() == fd) client.pipe->notice_event();
    }
    for (auto& [number, held] : shards_) {
      if (held.fd() == fd) held.notice_event();
    }
  }

  // What happens because time has passed.
  void check_time() {
    const TimePoint now = Clock::now();
    forget_lost_workers(now);
    for (auto& [number, held] : shards_) {
      if (!held.is_primary() || held.is_open()) continue;
      held.check_time(now);
      if (!held.is_primary()) close_connections(number);
    }
    for (ServerConnection& client : clients_) {
      client.pipe->look_for_silence(now);
      tell_stall(client, now);
    }
    if (snapshots_.is_due(now)) write_own_snapshot(now);
    snapshots_.reap();
    put_metrics(now);
    moves_.check(shards_, now);
    if (is_deserted() && now >= next_store_check_) check_store(now);
  }

  // ---- Metrics

  // At intervals, while they change.
  void put_metrics(TimePoint now) {
    if (!are_metrics_old_ || now < next_metrics_) return;
    are_metrics_old_ = false;
    if (options_.metrics == nullptr) return;
    next_metrics_ = now + kMetricsInterval;
    std::size_t count = 0;
    for (const auto& [number, held] : shards_) {
      if (held.role() != Role::none && count < kMaxShards) put_metrics(held, options_.metrics->shards[count++]);
    }
    while (count < kMaxShards) options_.metrics->shards[count++].number.set(0);
  }

  void put_metrics(const HeldShard& held, ShardMetrics& metrics) const {
    std::uint64_t queue = 0, waiting = 0;
    TimePoint since = TimePoint::max();
    for (const ServerConnection& client : clients_) {
      if (client.shard != held.number()) continue;
      queue += client.unread;
      if (!client.waits_since || *client.waits_for != '\0') continue;
      ++waiting;
      since = std::min(since, *client.waits_since);
    }
    metrics.answers.set(held.is_primary() ? 1 : 0);
    metrics.queue.set(queue);
    metrics.waiting.set(waiting);
    metrics.waiting_since.set(waiting > 0 ? static_cast<std::uint64_t>(since.time_since_epoch().count()) : 0);
    metrics.slowest.set(waiting > 0 ? static_cast<std::uint64_t>(held.shard().workers().slowest() + 1) : 0);
    held.shard().count_into(metrics);
  }

  bool is_deserted() const { return clients_.empty() && lost_.empty(); }

  // Without the job's store no worker finds this server any longer: it would wait for ever where nobody ends it.
  void check_store(TimePoint now) {
    next_store_check_ = now + kStoreInterval;
    try {
      store_.add(ps_keys::starts(options_.server), 0);
    } catch (const Error&) {
      log_.info("ends: the job's store is gone, and no worker is connected");
      stops_ = true;
    }
  }

  void forget_lost_workers(TimePoint now) {
    std::erase_if(lost_, [&](const Lost& lost) {
      HeldShard* const held = find_shard(lost.shard);
      if (held == nullptr || !held->is_primary()) return true;
      if (now < lost.since + options_.lease) return false;
      if (!held->apply({.op = PsOp::forget, .worker = static_cast<std::uint32_t>(lost.worker)}, {}, {})) return false;
      log_.warning("worker " + std::to_string(lost.worker) + " is lost: nobody waits for it any longer");
      return true;
    });
  }

  void tell_stall(ServerConnection& client, TimePoint now) {
    if (!client.waits_since || client.stall_told || options_.stall_warning <= Duration::zero()) return;
    if (now < *client.waits_since + options_.stall_warning) return;
    client.stall_told = true;
    const std::string who = "stalled: worker " + std::to_string(client.worker) + " waits for ";
    if (*client.waits_for != '\0') return log_.warning(who + client.waits_for);
    const HeldShard* const held = find_shard(client.shard);
    const int slowest = held == nullptr ? kNoNumber : held->shard().workers().slowest();
    if (slowest == kNoNumber) return;
    log_.warning("stalled: worker " + std::to_string(slowest) + " keeps worker " + std::to_string(client.worker) +
                 " waiting, which is ahead by as many clocks as its table allows");
  }

  // ---- Snapshots

  void write_own_snapshot(TimePoint now) {
    std::vector<const Shard*> own;
    for (const auto& [number, held] : shards_) {
      if (held.is_primary()) own.push_back(&held.shard());
    }
    snapshots_.write_due(own, now);
  }

  // What nobody else has: so a server that is ended on purpose loses nothing.
  void write_last_snapshot() {
    std::vector<const Shard*> own;
    for (const auto& [number, held] : shards_) {
      const bool has_copy = options_.copies > 1 && held.is_replicating();  // and not a move that is not over
      if (held.is_primary() && !has_copy && !held.is_over()) own.push_back(&held.shard());
    }
    snapshots_.write_last(own);
  }

  static std::string folder_in(std::span<const std::byte> payload) {
    std::string folder(reinterpret_cast<const char*>(payload.data()), payload.size());
    if (folder.empty() || folder.find('\0') != std::string::npos) throw InvalidArgument("a snapshot needs a folder");
    return folder;
  }

  // Answered when the file is complete. A second request waits until then.
  bool answer_snapshot(ServerConnection& client, const Shard& shard, const PsRequest& request,
                       std::span<const std::byte> payload) {
    if (!client.is_answering) {
      if (!snapshots_.is_free()) return client.wait_for("a snapshot");
      snapshots_.start(shard, folder_in(payload));
      client.is_answering = true;
    }
    if (!snapshots_.is_done()) return client.wait_for("a snapshot");
    const std::string& failure = snapshots_.failure();
    if (!(failure.empty() ? client.answer(request) : client.answer_error(request, Internal(failure)))) {
      return false;
    }
    client.is_answering = false;
    snapshots_.end();
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
  bool serve(ServerConnection& client) {
    const bool waited = client.waits_since.has_value();
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
    if (client.waits_since && !waited) are_metrics_old_ = true;
    client.pipe->flush();
    return answered > 0;
  }

  // False: not yet.
  bool answer(ServerConnection& client, const PsRequest& request, std::span<const std::byte> payload) {
    try {
      if (client.is_primary || request.op == PsOp::follow) return take_from_primary(client, request, payload);
      if (is_between_servers(request.op)) throw Internal("a worker sends what only servers send");
      return answer_worker(client, request, payload);
    } catch (const InvalidArgument& error) {
      return refuse(client, request, error);
    } catch (const Error& error) {
      if (error.code() == StatusCode::internal) throw;  // it does not speak the protocol
      return client.answer_error(request, error);
    } catch (const std::bad_alloc&) {
      return client.answer_error(request, Internal("the server is out of memory"));
    }
  }

  bool answer_worker(ServerConnection& client, const PsRequest& request, std::span<const std::byte> payload) {
    HeldShard* const held = find_shard(static_cast<int>(request.shard));
    if (held == nullptr || !answers_for(*held)) {
      throw Unsupported("server " + std::to_string(options_.server) + " does not answer for shard " +
                        std::to_string(request.shard));
    }
    const Shard& shard = held->shard();
    if (!held->is_open()) return client.wait_for("a second server, which is to keep the copy of its shard");
    if (request.op == PsOp::snapshot) return answer_snapshot(client, shard, request, payload);
    if (request.op == PsOp::stats) return client.answer_text(request, StatusCode::ok, held->stats());
    if (!shard.is_ready(request)) {
      return client.wait_for(shard.has_values(request) ? "" : "rank 0's first values of a table");
    }
    const std::size_t bytes = shard.answer_bytes(request);
    std::byte* const to = client.room_for(bytes);
    if (to == nullptr) return false;
    std::optional<PsAnswer> result;
    try {
      result = request.op == PsOp::restore ? held->restore(request, folder_in(payload))
                                           : held->apply(request, payload, {to + kPsHeaderBytes, bytes});
    } catch (...) {
      client.pipe->commit(0);
      throw;
    }
    if (!result) {
      client.pipe->commit(0);
      return false;
    }
    std::memcpy(to, &*result, sizeof *result);
    const std::uint64_t begin = client.pipe->committed();
    client.pipe->commit(ps_frame_bytes(bytes));
    held->add_load(ps_frame_bytes(request.bytes) + ps_frame_bytes(bytes));
    if (changes_shard(request.op)) client.hold_until_replicated(*held, begin);
    note(client, request);
    return true;
  }

  // What is numbered is refused once and for all: repeated on another connection, it must not be taken for what was
  // applied, because later requests were.
  bool refuse(ServerConnection& client, const PsRequest& request, const InvalidArgument& error) {
    HeldShard* const held = find_shard(static_cast<int>(request.shard));
    if (!is_numbered(request.op) || client.is_primary || held == nullptr || !held->is_primary()) {
      return client.answer_error(request, error);
    }
    if (!client.has_room_for(std::string_view(error.what()).size()) || !held->refuse(request, error.what()))
      return false;
    const std::uint64_t begin = client.pipe->committed();
    client.answer_error(request, error);
    client.hold_until_replicated(*held, begin);
    return true;
  }

  void note(ServerConnection& client, const PsRequest& request) {
    if (request.op == PsOp::leave) client.has_left = true;
    if (request.op != PsOp::hello) return;
    client.worker = static_cast<int>(request.worker);
    client.shard = static_cast<int>(request.shard);
    std::erase_if(lost_, [&](const Lost& lost) { return lost.worker == client.worker && lost.shard == client.shard; });
  }

  // From the primary of a shard whose replica is to be here.
  bool take_from_primary(ServerConnection& client, const PsRequest& request, std::span<const std::byte> payload) {
    if (!client.has_room_for(0)) return false;
    if (request.op == PsOp::follow) {
      begin_replica(client, request);
    } else {
      HeldShard* const held = find_shard(client.shard);
      if (held == nullptr) throw Internal("an earlier copy goes on");
      held->receive(request, payload);
    }
    return client.answer(request);
  }

  void begin_replica(ServerConnection& client, const PsRequest& request) {
    const int number = static_cast<int>(request.shard);
    if (options_.servers < 2 || number >= options_.shards()) {
      throw InvalidArgument("no such shard is to be copied here");
    }
    const HeldShard* const held = find_shard(number);
    if (held != nullptr && held->is_primary()) throw Aborted("this server answers for that shard");
    shards_.erase(number);
    for (ServerConnection& other : clients_) {
      if (&other != &client && other.is_primary && other.shard == number)
        other.shard = kNoNumber;  // an earlier attempt
    }
    hold(request.shard, Role::filling);
    client.is_primary = true;
    client.shard = number;
  }

  // Whether a shard that was moving to this server has become its own: the other server may just be saying so.
  void settle_arrivals(Deadline deadline) {
    const auto is_arriving = [this](auto& entry) {
      return options_.copies == 1 && entry.second.role() == Role::replica && !entry.second.arrives();
    };
    while (std::ranges::any_of(shards_, is_arriving) && Clock::now() < deadline) poll(1ms);
  }

  // The last answers, and what replicas lack, are on their way.
  void finish() {
    const Deadline deadline = deadline_after(kShareTime);
    for (auto& [number, held] : shards_) held.stop_moving();
    const auto has_output = [](const ServerConnection& client) { return client.pipe->has_output(); };
    const auto is_behind = [](const auto& entry) {
      const HeldShard& held = entry.second;
      return held.is_replicating() && !held.is_replicated(held.position());
    };
    while (Clock::now() < deadline &&
           (std::ranges::any_of(clients_, has_output) || std::ranges::any_of(shards_, is_behind))) {
      for (ServerConnection& client : clients_) client.flush();
      replicate();
      poll(1ms);
    }
    settle_arrivals(deadline);
    write_last_snapshot();
  }

  const ServerOptions options_;
  const Store store_;
  const JobKey key_;
  const Log& log_;
  ShardMoves moves_{options_, store_, log_};
  FileDescriptor epoll_;
  FileDescriptor bell_;
  SnapshotWriter snapshots_;
  const int cpus_;
  std::map<int, HeldShard> shards_;   // by number
  std::optional<Acceptor> acceptor_;  // empty once the server has failed
  std::vector<ServerConnection> clients_;
  int sharing_ = 0;  // clients that share memory
  std::vector<Lost> lost_;
  bool is_accept_told_ = false;
  Deadline next_store_check_ = deadline_after(kStoreInterval);
  TimePoint next_metrics_{};
  bool are_metrics_old_ = true;  // requests were answered, or began to wait
  std::atomic<bool> stops_{false};
};

ParameterServer::ParameterServer(const ServerOptions& options, const Store& store, const JobKey& key, const Log& log)
    : state_(std::make_unique<State>(options, store, key, log)) {}

ParameterServer::~ParameterServer() = default;

void ParameterServer::run() { state_->run(); }

void ParameterServer::stop() noexcept { state_->stop(); }

}  // namespace hvd
