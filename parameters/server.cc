#include "parameters/server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "parameters/held_shard.h"
#include "parameters/server_connection.h"
#include "parameters/shard_moves.h"
#include "parameters/shard_service.h"
#include "parameters/snapshot_writer.h"

namespace hvd {

namespace {

constexpr Duration kFinishTime = std::chrono::seconds(2);  // for the last answers
constexpr Duration kStoreInterval = std::chrono::seconds(1);
constexpr Duration kMetricsInterval = std::chrono::milliseconds(100);
constexpr int kTurnsPerPoll = 64;  // while busy: sockets are looked at once in so many turns

void write_metrics(const HeldShard& held, const ServerConnections& connections, ShardMetrics& metrics) {
  std::uint64_t queue = 0, waiting = 0;
  TimePoint since = TimePoint::max();
  for (const ServerConnection& client : connections.all()) {
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

void write_metrics(const HeldShards& shards, const ServerConnections& connections, Metrics& metrics) {
  std::size_t count = 0;
  for (const auto& [number, held] : shards) {
    if (held.role() != Role::none && count < kMaxShards) write_metrics(held, connections, metrics.shards[count++]);
  }
  while (count < kMaxShards) metrics.shards[count++].number.set(0);
}

void tell_stall(ServerConnection& client, HeldShards& shards, const Log& log) {
  client.stall_told = true;
  const std::string who = "stalled: worker " + std::to_string(client.worker) + " waits for ";
  if (*client.waits_for != '\0') return log.warning(who + client.waits_for);
  const HeldShard* const held = shards.find(client.shard);
  const int slowest = held == nullptr ? kNoNumber : held->shard().workers().slowest();
  if (slowest == kNoNumber) return;
  log.warning(who + "worker " + std::to_string(slowest) + ", which is behind by the table's bound");
}

}  // namespace

class ParameterServer::State {
 public:
  State(const ServerOptions& options, const Store& store, const JobKey& key, const Log& log)
      : options_(options),
        store_(store),
        key_(key),
        log_(log),
        snapshots_(options.snapshot, options.interval, log),
        connections_(options.lease, log) {
    if (options.copies > 1 && options.servers < 2) throw InvalidArgument("two copies of a shard need two servers");
    const std::int64_t start = store_.add(ps_keys::starts(options.server), 1);
    shards_.hold_own(start == 1);
    const ServerAddresses addresses = connections_.listen(options_, key_);
    store_.set(ps_keys::place(options.server, start), encode_value(addresses));
  }

  void run() {
    try {
      serve_until_over();
    } catch (...) {  // nobody waits for a server that has failed
      connections_.close();
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
      if (is_busy || idle_turns < connections_.idle_limit()) {
        if (!is_busy) connections_.rest();
        if (!is_busy) ++idle_turns;
        if (turn % kTurnsPerPoll == 0) poll(Duration::zero());
        continue;
      }
      sleep();
      idle_turns = 0;
    }
    send_last_answers();
  }

  void stop() noexcept {
    stops_ = true;
    connections_.wake();
  }

 private:
  // ---- Connections

  bool serve_all() {
    bool any = false;
    for (std::size_t i = 0; i < connections_.all().size();) {
      try {
        ServerConnection& client = connections_.all()[i];
        const bool waited = client.waits_since.has_value();
        any = service_.serve(client) || any;
        if (client.waits_since && !waited) are_metrics_old_ = true;
        ++i;
      } catch (const Error& error) {
        drop(i, error);
        any = true;  // others may have waited for its snapshot
      }
    }
    return any;
  }

  void drop(std::size_t i, const Error& error) {
    const ServerConnection client = erase(i);
    const std::string who = client.is_primary ? "another server" : "worker " + std::to_string(client.worker);
    if (error.code() != StatusCode::peer_lost) log_.warning("drops the connection of " + who + ": " + error.what());
    if (client.is_primary) return shards_.lose_primary(client.shard);
    const auto is_same = [&](const ServerConnection& other) {
      return other.worker == client.worker && other.shard == client.shard;
    };
    if (client.worker != kNoNumber && !client.has_left && std::ranges::none_of(connections_.all(), is_same)) {
      shards_.lose_worker(client.shard, client.worker, Clock::now());
    }
  }

  ServerConnection erase(std::size_t i) {
    ServerConnection client = connections_.erase(i);
    if (client.is_answering) snapshots_.abandon();
    return client;
  }

  void close_connections(int shard) {
    for (std::size_t i = connections_.all().size(); i-- > 0;) {
      if (connections_.all()[i].shard == shard) erase(i);
    }
  }

  // Sends what replicas lack, and releases the answers that have waited for them.
  void replicate() {
    for (auto& [number, held] : shards_) {
      if (!held.is_primary()) continue;
      if (const auto fd = held.progress()) connections_.watch(*fd);
      release_answers(held);
    }
    shards_.erase_moved();
  }

  // If another server goes on with the shard, its workers' connections close without the answers that were held back.
  void release_answers(HeldShard& held) {
    if (!held.is_primary()) return close_connections(held.number());
    for (ServerConnection& client : connections_.all()) {
      if (client.shard == held.number()) client.release(held.replicated());
    }
  }

  // ---- Time

  void sleep() {
    put_metrics(Clock::now());
    if (connections_.begin_sleep()) poll(std::max(Duration::zero(), next_deadline() - Clock::now()));
    connections_.end_sleep();
  }

  Deadline next_deadline() const {
    Deadline next = std::min(
        {snapshots_.next_deadline(), connections_.next_deadline(), shards_.next_deadline(), moves_.next_check()});
    for (const ServerConnection& client : connections_.all()) {
      next = std::min(next, client.stall_deadline(options_.stall_warning));
    }
    if (are_metrics_old_) next = std::min(next, next_metrics_);
    if (is_deserted()) next = std::min(next, next_store_check_);
    return next;
  }

  void poll(Duration timeout) {
    for (const epoll_event& event : connections_.wait(timeout)) shards_.notice_event(event.data.fd);
    connections_.accept();
    check_time();
  }

  // What happens because time has passed.
  void check_time() {
    const TimePoint now = Clock::now();
    shards_.forget_lost_workers(now);
    for (auto& [number, held] : shards_) {
      if (!held.is_primary() || held.is_open()) continue;
      held.check_time(now);
      if (!held.is_primary()) close_connections(number);
    }
    for (ServerConnection& client : connections_.all()) {
      client.pipe->check_lease(now);
      if (now >= client.stall_deadline(options_.stall_warning)) tell_stall(client, shards_, log_);
    }
    if (snapshots_.is_due(now)) write_own_snapshot(now);
    snapshots_.reap();
    put_metrics(now);
    moves_.check(shards_, now);
    if (is_deserted() && now >= next_store_check_) check_store(now);
  }

  // At intervals, while they change.
  void put_metrics(TimePoint now) {
    if (!are_metrics_old_ || now < next_metrics_) return;
    are_metrics_old_ = false;
    if (options_.metrics == nullptr) return;
    next_metrics_ = now + kMetricsInterval;
    write_metrics(shards_, connections_, *options_.metrics);
  }

  bool is_deserted() const { return connections_.all().empty() && !shards_.has_lost_workers(); }

  // Without the job's store no worker finds this server any longer: it would wait for ever where nobody ends it.
  void check_store(TimePoint now) {
    next_store_check_ = now + kStoreInterval;
    try {
      store_.add(ps_keys::starts(options_.server), 0);
    } catch (const Error& error) {
      if (error.code() != StatusCode::peer_lost) return;  // it does not answer, and may yet
      log_.info("ends: the job's store is gone, and no worker is connected");
      stops_ = true;
    }
  }

  void write_own_snapshot(TimePoint now) {
    std::vector<const Shard*> own;
    for (const auto& [number, held] : shards_) {
      if (held.is_primary()) own.push_back(&held.shard());
    }
    snapshots_.write_due(own, now);
  }

  // ---- The end

  // False while other servers have gone on with all shards of this one (Role::none): they need copies here.
  bool is_over() const {
    const auto has_ended = [](const auto& entry) { return entry.second.shard().is_over(); };
    const auto is_done = [](const auto& entry) { return entry.second.is_over(); };
    const auto holds_answers = [](const ServerConnection& client) { return client.holds_answers(); };
    return std::ranges::any_of(shards_, has_ended) && std::ranges::all_of(shards_, is_done) &&
           std::ranges::none_of(connections_.all(), holds_answers);
  }

  // The last answers, and what replicas lack, are on their way.
  void send_last_answers() {
    const Deadline deadline = deadline_after(kFinishTime);
    for (auto& [number, held] : shards_) held.stop_moving();
    const auto has_output = [](const ServerConnection& client) { return client.pipe->has_output(); };
    const auto is_behind = [](auto& entry) {
      const ReplicatedShard& shard = entry.second.replicated();
      return shard.is_replicating() && !shard.is_replicated(shard.position());
    };
    while (Clock::now() < deadline &&
           (std::ranges::any_of(connections_.all(), has_output) || std::ranges::any_of(shards_, is_behind))) {
      for (ServerConnection& client : connections_.all()) client.flush();
      replicate();
      poll(1ms);
    }
    resolve_incoming_moves(deadline);
    write_last_snapshot();
  }

  // Whether a shard that was moving to this server has become its own: the other server may just be saying so.
  void resolve_incoming_moves(Deadline deadline) {
    const auto is_arriving = [this](auto& entry) {
      return options_.copies == 1 && entry.second.role() == Role::replica && !entry.second.arrives();
    };
    while (std::ranges::any_of(shards_, is_arriving) && Clock::now() < deadline) poll(1ms);
  }

  // What nobody else has: so a server that is ended on purpose loses nothing.
  void write_last_snapshot() {
    std::vector<const Shard*> own;
    for (auto& [number, held] : shards_) {
      const bool has_copy = options_.copies > 1 && held.replicated().is_replicating();  // and not a move in progress
      if (held.is_primary() && !has_copy && !held.is_over()) own.push_back(&held.shard());
    }
    snapshots_.write_last(own);
  }

  const ServerOptions options_;
  const Store store_;
  const JobKey key_;
  const Log& log_;
  ShardMoves moves_{options_, store_, log_};
  SnapshotWriter snapshots_;
  HeldShards shards_{options_, store_, key_, log_};
  ServerConnections connections_;
  ShardService service_{options_, shards_, connections_, snapshots_};
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
