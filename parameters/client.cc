#include "parameters/client.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "parameters/link.h"
#include "parameters/message.h"
#include "parameters/row_cache.h"
#include "parameters/server.h"

namespace hvd {

namespace {

constexpr Duration kSameWait = std::chrono::seconds(1);  // between the end of a wait and its continuation, at most
// A waiting thread then lets others in, and looks at alarms.
constexpr Duration kPollInterval = std::chrono::milliseconds(2);

Bytes bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

// The lock of a function of the caller's, before which a thread that waits for answers steps back.
class SCOPED_CAPABILITY CallerLock {
 public:
  CallerLock(Mutex& mutex, std::atomic<int>& callers) ACQUIRE(mutex) : mutex_(mutex) {
    ++callers;
    mutex_.lock();
    --callers;
  }
  ~CallerLock() RELEASE() { mutex_.unlock(); }
  CallerLock(const CallerLock&) = delete;
  CallerLock& operator=(const CallerLock&) = delete;

 private:
  Mutex& mutex_;
};

// A thread's wait for servers, as the metrics show it. One that was given up and begins anew is the same: Python waits
// a tenth of a second at a time.
class MeasuredWait {
 public:
  explicit MeasuredWait(Metrics* metrics) : metrics_(metrics) {}
  ~MeasuredWait() {
    if (metrics_ == nullptr) return;
    if (server_) metrics_->worker.wait_time.add(Clock::now() - began_);
    if (!is_given_up_) metrics_->worker.awaited.set(0);
  }
  MeasuredWait(const MeasuredWait&) = delete;
  MeasuredWait& operator=(const MeasuredWait&) = delete;

  void is_for(int server, TimePoint now) {
    if (metrics_ == nullptr || server == server_) return;
    if (!server_) began_ = now;
    server_ = server;
    const std::uint64_t number = static_cast<std::uint64_t>(server) + 1;
    if (metrics_->worker.awaited.value() == number) return;
    metrics_->worker.waiting_since.set(static_cast<std::uint64_t>(now.time_since_epoch().count()));
    metrics_->worker.awaited.set(number);
  }
  void give_up() { is_given_up_ = true; }

 private:
  Metrics* const metrics_;
  TimePoint began_{};
  std::optional<int> server_{};
  bool is_given_up_ = false;
};

}  // namespace

class ParameterClient::State {
 public:
  State(const WorkerOptions& options, const Store& store, const JobKey& key, const Log& log)
      : worker{options, store, key, log,
               static_cast<std::uint64_t>(store.add(ps_keys::incarnations(options.worker), 1))} {}

  const WorkerIdentity worker;
  Mutex opening;  // one table at a time
  Mutex mutex ACQUIRED_AFTER(opening);
  std::atomic<int> callers{0};                     // that want the mutex: a thread that waits for answers lets them in
  std::deque<TableSpec> tables GUARDED_BY(mutex);  // references stay valid
  std::vector<std::unique_ptr<RowCache>> caches GUARDED_BY(mutex);  // by table; null: it has none
  std::vector<std::unique_ptr<Link>> links GUARDED_BY(mutex);
  std::uint32_t clock GUARDED_BY(mutex) = 0;
  Status failure GUARDED_BY(mutex);                        // of what nobody waits for
  Status ended GUARDED_BY(mutex);                          // why no further call is possible
  TimePoint gave_up GUARDED_BY(mutex){};                   // the last wait that ended without what it was for
  Deadline stall_due GUARDED_BY(mutex) = Deadline::max();  // of the present wait: when it is told as a stall

  std::uint32_t shards() const { return static_cast<std::uint32_t>(worker.options.shards()); }

  const TableSpec& spec_of(int table) const REQUIRES(mutex) {
    if (table < 0 || static_cast<std::size_t>(table) >= tables.size()) throw InvalidArgument("there is no such table");
    return tables[static_cast<std::size_t>(table)];
  }

  void check() const REQUIRES(mutex) {
    if (!ended.ok()) throw Error(ended);
  }

  bool is_idle() const REQUIRES(mutex) {
    return std::ranges::all_of(links, [](const auto& link) { return link->is_idle(); });
  }

  void progress() REQUIRES(mutex) {
    try {
      for (const auto& link : links) link->progress();
    } catch (const Error& error) {
      end(error.status());
      throw;
    }
  }

  // A server is lost for good: so is the client.
  void end(const Status& reason) REQUIRES(mutex) {
    if (ended.ok()) ended = reason;
    for (const auto& link : links) link->close(ended);
  }

  // The link whose answers are waited for: one that has a connection, if there is one. Null: none.
  Link* awaited() const REQUIRES(mutex) {
    Link* found = nullptr;
    for (const auto& link : links) {
      if (!link->is_idle() && (found == nullptr || (link->is_connected() && !found->is_connected())))
        found = link.get();
    }
    return found;
  }

  // Makes progress until done(), which is called with the mutex held, or false at the deadline.
  template <typename Done>
  bool run_until(Deadline deadline, const Done& done) EXCLUDES(mutex) {
    AlarmClock alarm(worker.store.alarm());
    MeasuredWait measured(worker.options.metrics.get());
    for (bool begins = true;; begins = false) {
      bool has_waited = false;
      {
        const MutexLock lock(mutex);
        check();
        progress();
        if (done()) {
          gave_up = {};
          return true;
        }
        const TimePoint now = Clock::now();
        if (begins) begin_wait(now);
        for (const auto& link : links) link->check_lease(now);
        Link* const link = awaited();
        if (link != nullptr) measured.is_for(link->server(), now);
        if (now >= deadline) {
          measured.give_up();
          gave_up = now;
          return false;
        }
        if (now >= stall_due && link != nullptr) {
          stall_due = Deadline::max();
          tell_stall(*link);
        }
        if (link != nullptr) {
          has_waited = callers > 0 || link->wait(std::min({deadline, alarm.next(), deadline_after(kPollInterval)}));
        }
      }
      if (!has_waited) std::this_thread::sleep_for(1ms);
      while (callers > 0) std::this_thread::yield();
      check_alarm(alarm);
    }
  }

  // Python waits a tenth of a second at a time: a wait that was given up and goes on at once is the same.
  void begin_wait(TimePoint now) REQUIRES(mutex) {
    if (now < gave_up + kSameWait) return;
    const Duration until_stall = worker.options.stall_warning;
    stall_due = until_stall > Duration::zero() ? now + until_stall : Deadline::max();
  }

  void tell_stall(const Link& link) const {
    worker.log.warning("stalled: no answer from parameter server " + std::to_string(link.server()) +
                       ", which is stopped, or makes this worker wait for a slower one");
  }

  // Ends all calls if the job has failed: nobody waits for them, and their memory may go.
  void check_alarm(AlarmClock& alarm) EXCLUDES(mutex) {
    try {
      alarm.poll();
    } catch (const Error& error) {
      const MutexLock lock(mutex);
      end(error.status());
      throw;
    }
  }

  void connect() EXCLUDES(mutex);
  int find_table(const TableSpec& spec, std::uint32_t cache) const REQUIRES(mutex);
  void add_table(const TableSpec& spec, std::uint32_t cache) EXCLUDES(mutex) REQUIRES(opening);
  void remove_last_table() REQUIRES(mutex);
  CallReference start(int table, PsOp op, const RowsCall& rows) EXCLUDES(mutex);
  CallReference ask_all(PsOp op, int table, const Bytes& payload) EXCLUDES(mutex);
  CallReference submit_to_all(PsOp op, int table, const Bytes& payload) REQUIRES(mutex);
  void wait_for(const CallReference& call, Deadline deadline, const char* what) EXCLUDES(mutex);
  std::vector<std::uint32_t> missing_in_cache(const ShardMessage& pull) REQUIRES(mutex);
  void deal(ShardMessage prototype, std::span<const std::uint64_t> keys) REQUIRES(mutex);
  void deal_places(const ShardMessage& prototype, std::span<const std::uint32_t> places) REQUIRES(mutex);
  void submit_range(ShardMessage&& prototype, std::uint32_t shard, std::uint32_t first, std::uint32_t count)
      REQUIRES(mutex);
  std::uint32_t rows_per_message(const TableSpec& spec, PsOp op) const;
};

// ---- Tables

int ParameterClient::State::find_table(const TableSpec& spec, std::uint32_t cache) const {
  const auto found = std::ranges::find(tables, spec.name, &TableSpec::name);
  if (found == tables.end()) return -1;
  const auto number = static_cast<std::size_t>(found - tables.begin());
  if (!(*found == spec) || cache != (caches[number] ? caches[number]->clocks() : 0)) {
    throw InvalidArgument("table '" + spec.name + "' is open already, with other arguments");
  }
  return static_cast<int>(number);
}

void ParameterClient::State::add_table(const TableSpec& spec, std::uint32_t cache) {
  ByteWriter bytes;
  bytes.put(spec);
  CallReference call;
  {
    const CallerLock lock(mutex, callers);
    tables.push_back(spec);
    caches.push_back(cache == 0 ? nullptr : std::make_unique<RowCache>(spec.width, cache));
    call = submit_to_all(PsOp::open_table, static_cast<int>(tables.size() - 1), bytes.take());
  }
  try {
    wait_for(call, deadline_after(worker.options.start_timeout), ("table '" + spec.name + "'").c_str());
  } catch (const Error& error) {
    const CallerLock lock(mutex, callers);
    if (call->unanswered > 0) end(error.status());  // an answer may still come
    remove_last_table();
    throw;
  }
}

void ParameterClient::State::remove_last_table() {
  tables.pop_back();
  caches.pop_back();
  for (const auto& link : links) link->forget_tables(tables.size());
}

// ---- Calls

std::uint32_t ParameterClient::State::rows_per_message(const TableSpec& spec, PsOp op) const {
  const std::size_t row = sizeof(std::uint64_t) + (op == PsOp::pull ? 0 : spec.width * sizeof(float));
  const std::size_t answered = op == PsOp::push || op == PsOp::fill ? 1 : spec.width * sizeof(float);
  const std::size_t rows = std::min(kMaxPsPayload / row, kMaxPsPayload / answered);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(rows, 1, kMaxPsRows));
}

void ParameterClient::State::submit_range(ShardMessage&& prototype, std::uint32_t shard, std::uint32_t first,
                                          std::uint32_t count) {
  const std::uint32_t at_most = rows_per_message(spec_of(prototype.table), prototype.request.op);
  if (count <= at_most && count > 0) {
    prototype.first = first;
    prototype.request.rows = count;
    return links[shard]->submit(std::move(prototype), clock);
  }
  for (std::uint32_t done = 0; done < count;) {
    ShardMessage message = prototype;
    message.first = first + done;
    message.request.rows = std::min(count - done, at_most);
    done += message.request.rows;
    links[shard]->submit(std::move(message), clock);
  }
}

// To each shard its rows: as they lie in memory where that is all of them or a range, else one by one.
void ParameterClient::State::deal(ShardMessage prototype, std::span<const std::uint64_t> keys) {
  const TableSpec& spec = spec_of(prototype.table);
  const auto count = static_cast<std::uint32_t>(keys.size());
  if (shards() == 1) return submit_range(std::move(prototype), 0, 0, count);
  if (prototype.rows.is_whole) {
    for (std::uint32_t first = 0; first < count;) {
      const std::uint32_t shard = shard_of(spec, first, shards());
      std::uint32_t end = first + 1;
      while (end < count && shard_of(spec, end, shards()) == shard) ++end;
      submit_range(ShardMessage(prototype), shard, first, end - first);
      first = end;
    }
    return;
  }
  std::vector<std::uint32_t> places(count);
  std::iota(places.begin(), places.end(), 0u);
  deal_places(prototype, places);
}

// Of a call's rows those at these places.
void ParameterClient::State::deal_places(const ShardMessage& prototype, std::span<const std::uint32_t> places) {
  const TableSpec& spec = spec_of(prototype.table);
  std::vector<std::vector<std::uint32_t>> by_shard(shards());
  for (const std::uint32_t place : places) {
    by_shard[shard_of(spec, prototype.rows.keys[place], shards())].push_back(place);
  }
  const std::uint32_t at_most = rows_per_message(spec, prototype.request.op);
  for (std::uint32_t shard = 0; shard < shards(); ++shard) {
    const auto& own = by_shard[shard];
    for (std::size_t first = 0; first < own.size(); first += at_most) {
      ShardMessage message = prototype;
      const std::size_t end = std::min(own.size(), first + at_most);
      message.places.assign(own.begin() + static_cast<std::ptrdiff_t>(first),
                            own.begin() + static_cast<std::ptrdiff_t>(end));
      message.request.rows = static_cast<std::uint32_t>(message.places.size());
      links[shard]->submit(std::move(message), clock);
    }
  }
}

// The places of a pull's rows that the cache does not have; the others are copied.
std::vector<std::uint32_t> ParameterClient::State::missing_in_cache(const ShardMessage& pull) {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t i = 0; i < pull.rows.keys.size(); ++i) {
    if (!pull.cache->find(pull.rows.keys[i], clock, pull.rows.rows + i * pull.width)) missing.push_back(i);
  }
  return missing;
}

ParameterClient::CallReference ParameterClient::State::start(int table, PsOp op, const RowsCall& rows) {
  const CallerLock lock(mutex, callers);
  check();
  const TableSpec& spec = spec_of(table);
  if (rows.is_whole && !spec.dense) throw InvalidArgument("table '" + spec.name + "' is sparse: give the keys of rows");
  if (op == PsOp::push_pull && spec.consistency == Consistency::synchronous) {
    throw InvalidArgument("table '" + spec.name +
                          "' is synchronous: its rows change with the clock; push, advance the clock, and pull");
  }
  if (spec.dense) {
    for (const std::uint64_t row : rows.keys) {
      if (row >= spec.rows) {
        throw InvalidArgument("table '" + spec.name + "' has " + std::to_string(spec.rows) +
                              " rows, and none of number " + std::to_string(row));
      }
    }
  }
  auto call = std::make_shared<Call>();
  ShardMessage prototype{.request = {.op = op}, .table = table, .width = spec.width, .call = call, .rows = rows};
  if (op == PsOp::push || op == PsOp::fill) prototype.rows.rows = nullptr;
  if (rows.is_whole) {
    if (rows.values <= (spec.rows - 1) * spec.width || rows.values > spec.rows * spec.width) {
      throw InvalidArgument("table '" + spec.name + "' has " + std::to_string(spec.rows) + " rows of " +
                            std::to_string(spec.width) + " values, not " + std::to_string(rows.values) + " values");
    }
    call->own_keys.resize(spec.rows);
    std::iota(call->own_keys.begin(), call->own_keys.end(), std::uint64_t{0});
    prototype.rows.keys = call->own_keys;
  } else {
    prototype.rows.values = rows.keys.size() * spec.width;
  }
  prototype.cache = caches[static_cast<std::size_t>(table)].get();
  if (prototype.cache != nullptr && op == PsOp::pull) {
    deal_places(prototype, missing_in_cache(prototype));
  } else {
    if (prototype.cache != nullptr)
      std::ranges::for_each(rows.keys, [&](auto key) { prototype.cache->begin_push(key); });
    deal(std::move(prototype), call->own_keys.empty() ? rows.keys : call->own_keys);
  }
  progress();
  return call;
}

ParameterClient::CallReference ParameterClient::State::ask_all(PsOp op, int table, const Bytes& payload) {
  const CallerLock lock(mutex, callers);
  check();
  if (table >= 0) spec_of(table);
  return submit_to_all(op, table, payload);
}

ParameterClient::CallReference ParameterClient::State::submit_to_all(PsOp op, int table, const Bytes& payload) {
  auto call = std::make_shared<Call>();
  call->texts.resize(op == PsOp::stats ? links.size() : 0);
  if (op == PsOp::restore) {  // also if it fails: some servers may have restored what they could
    call->at_end = [this]() NO_THREAD_SAFETY_ANALYSIS {  // the links call it, under the mutex
      for (const auto& cache : caches) {
        if (cache) cache->forget();
      }
    };
  }
  for (const auto& link : links) {
    link->submit({.request = {.op = op}, .table = table, .call = call, .payload = payload}, clock);
  }
  return call;
}

void ParameterClient::State::wait_for(const CallReference& call, Deadline deadline, const char* what) {
  if (!run_until(deadline, [&] { return call->unanswered == 0; })) {
    std::set<int> missing;  // a server may have several links
    const CallerLock lock(mutex, callers);
    for (const auto& link : links) {
      if (!link->is_idle()) missing.insert(link->server());
    }
    std::string text;
    for (const int server : missing) text += (text.empty() ? "" : ", ") + std::to_string(server);
    throw Timeout(std::string(what) + ": no answer from parameter server " + text);
  }
  if (!call->status.ok()) throw Error(call->status);
}

// ---- ParameterClient

// With all servers at a time: which may not have begun.
void ParameterClient::State::connect() {
  const CallerLock lock(mutex, callers);
  for (int shard = 0; shard < worker.options.shards(); ++shard) {
    links.push_back(std::make_unique<Link>(worker, shard, tables, failure));
  }
  AlarmClock alarm(worker.store.alarm());
  for (;;) {
    Link* missing = nullptr;
    for (const auto& link : links) {
      if (!link->connect()) missing = link.get();
    }
    if (missing == nullptr) break;
    alarm.poll();
    if (!missing->wait(deadline_after(kPollInterval))) std::this_thread::sleep_for(1ms);
  }
  for (const auto& link : links) clock = std::max(clock, link->confirmed_clock());
  // Shards differ while other workers' clocks are on their way: behind its own clock this worker would wait for itself.
  for (const auto& link : links) {
    if (link->confirmed_clock() < clock) link->submit({.request = {.op = PsOp::clock}, .call = nullptr}, clock);
  }
  progress();
}

ParameterClient::ParameterClient(const WorkerOptions& options, const Store& store, const JobKey& key, const Log& log)
    : state_(std::make_unique<State>(options, store, key, log)) {
  state_->connect();
}

ParameterClient::~ParameterClient() = default;

int ParameterClient::open(const TableSpec& spec, std::uint32_t cache) {
  check_table_spec(spec);
  if (cache > 0 && (spec.dense || spec.consistency == Consistency::synchronous)) {
    throw InvalidArgument("table '" + spec.name + "': only sparse tables that are not synchronous have a cache");
  }
  const MutexLock opening(state_->opening);
  {
    const CallerLock lock(state_->mutex, state_->callers);
    state_->check();
    if (const int number = state_->find_table(spec, cache); number >= 0) return number;
  }
  state_->add_table(spec, cache);
  const CallerLock lock(state_->mutex, state_->callers);
  return static_cast<int>(state_->tables.size() - 1);
}

int ParameterClient::servers() const { return state_->worker.options.servers; }

const TableSpec& ParameterClient::spec(int table) const {
  const CallerLock lock(state_->mutex, state_->callers);
  return state_->spec_of(table);
}

ParameterClient::CacheCounts ParameterClient::cache_counts(int table) const {
  const CallerLock lock(state_->mutex, state_->callers);
  state_->spec_of(table);
  const RowCache* const cache = state_->caches[static_cast<std::size_t>(table)].get();
  if (cache == nullptr) return {};
  return {.found = cache->found(), .missing = cache->missing()};
}

ParameterClient::CallReference ParameterClient::pull(int table, const RowsCall& rows) {
  return state_->start(table, PsOp::pull, rows);
}

ParameterClient::CallReference ParameterClient::push(int table, const RowsCall& rows) {
  return state_->start(table, PsOp::push, rows);
}

ParameterClient::CallReference ParameterClient::push_pull(int table, const RowsCall& rows) {
  return state_->start(table, PsOp::push_pull, rows);
}

ParameterClient::CallReference ParameterClient::fill(int table, const RowsCall& rows) {
  return state_->start(table, PsOp::fill, rows);
}

bool ParameterClient::wait(const CallReference& call, Deadline deadline) {
  if (!state_->run_until(deadline, [&] { return call->unanswered == 0; })) return false;
  call->told = true;
  if (!call->status.ok()) throw Error(call->status);
  return true;
}

bool ParameterClient::is_done(const CallReference& call) {
  const CallerLock lock(state_->mutex, state_->callers);
  if (call->unanswered > 0 && state_->ended.ok()) state_->progress();
  return call->unanswered == 0;
}

std::uint64_t ParameterClient::version(const CallReference& call) {
  return call->version == std::numeric_limits<std::uint64_t>::max() ? 0 : call->version;  // it had no rows
}

void ParameterClient::drop(const CallReference& call) {
  const CallerLock lock(state_->mutex, state_->callers);
  call->dropped = true;
  if (call->unanswered == 0 && !call->told && state_->failure.ok()) state_->failure = call->status;
}

bool ParameterClient::flush(Deadline deadline) {
  State& state = *state_;
  const auto is_idle = [&state]() NO_THREAD_SAFETY_ANALYSIS { return state.is_idle(); };  // run_until() holds it
  if (!state.run_until(deadline, is_idle)) return false;
  const CallerLock lock(state_->mutex, state_->callers);
  const Status failure = std::exchange(state_->failure, Status());
  if (!failure.ok()) throw Error(failure);
  return true;
}

void ParameterClient::advance_clock() {
  const CallerLock lock(state_->mutex, state_->callers);
  state_->check();
  ++state_->clock;
  for (const auto& cache : state_->caches) {
    if (cache) cache->advance(state_->clock);
  }
  for (const auto& link : state_->links) {
    link->submit({.request = {.op = PsOp::clock}, .call = nullptr}, state_->clock);
  }
  state_->progress();
}

std::uint32_t ParameterClient::clock() const {
  const CallerLock lock(state_->mutex, state_->callers);
  return state_->clock;
}

std::uint32_t ParameterClient::min_clock() const {
  const CallerLock lock(state_->mutex, state_->callers);
  std::uint32_t lowest = std::numeric_limits<std::uint32_t>::max();
  for (const auto& link : state_->links) lowest = std::min(lowest, link->min_clock());
  return lowest;
}

ParameterClient::CallReference ParameterClient::set_learning_rate(int table, float rate) {
  ByteWriter payload;
  payload.put(rate);
  return state_->ask_all(PsOp::learning_rate, table, payload.take());
}

ParameterClient::CallReference ParameterClient::stats() { return state_->ask_all(PsOp::stats, -1, {}); }

const std::vector<std::string>& ParameterClient::texts(const CallReference& call) { return call->texts; }

ParameterClient::CallReference ParameterClient::snapshot(const std::string& folder) {
  return state_->ask_all(PsOp::snapshot, -1, bytes_of(folder));
}

ParameterClient::CallReference ParameterClient::restore(const std::string& folder) {
  return state_->ask_all(PsOp::restore, -1, bytes_of(folder));
}

ParameterClient::CallReference ParameterClient::leave() { return state_->ask_all(PsOp::leave, -1, {}); }

}  // namespace hvd
