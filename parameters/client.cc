#include "parameters/client.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "core/net/connection_attempt.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/server.h"

namespace hvd {

// A call in progress: how many of its messages have no answer yet, and what went wrong first.
class ParameterClient::Call {
 public:
  int unanswered = 0;
  bool told = false;     // somebody has waited for it
  bool dropped = false;  // nobody will
  Status status;
  std::uint64_t version = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> own_keys;  // of a whole table: refers to no memory of the caller
  std::string* text = nullptr;          // stats: where the answer goes
};

namespace {

constexpr Duration kAttempt = std::chrono::seconds(1);  // to connect, before another server is tried
constexpr Duration kRetry = std::chrono::milliseconds(20);
constexpr Duration kNap = std::chrono::milliseconds(2);  // a waiting thread then lets others in, and looks at alarms

// What is sent to one server: rows of a call, or a payload of another kind.
struct Message {
  PsRequest request;
  int table = -1;
  ParameterClient::CallReference call;
  RowsCall rows{};
  std::vector<std::uint32_t> places{};  // of its rows within the call; empty: `request.rows` from `first` on
  std::uint32_t first = 0;
  Bytes payload{};
};

}  // namespace

// The connection with one server.
class ParameterClient::Link {
 public:
  Link(State& state, int server) : state_(state), server_(server) {}

  void connect(Deadline deadline);
  // Opens the last of this process's tables at the server, once everything before is answered.
  void open_last(Deadline deadline);
  void forget_last();
  // To be sent by progress(), in order.
  void submit(Message&& message);
  // Sends what fits and takes the answers that have arrived. Throws PeerLost if the connection cannot be made again.
  void progress();
  bool is_idle() const { return messages_.empty(); }
  void wait(Deadline deadline) { pipe_->wait(deadline); }
  void look_for_silence(TimePoint now) { pipe_->look_for_silence(now); }
  void close(const Status& reason);
  std::uint32_t min_clock() const { return min_clock_; }
  int server() const { return server_; }

 private:
  void reconnect();
  std::unique_ptr<Pipe> open_pipe(Deadline deadline);
  std::uint16_t open_table(Pipe& pipe, const TableSpec& spec, Deadline deadline);
  PsAnswer ask(Pipe& pipe, PsRequest request, std::span<const std::byte> payload, Deadline deadline);
  bool send(const Message& message);
  std::size_t payload_bytes(const Message& message) const;
  void write_payload(const Message& message, std::byte* to) const;
  void take_answers();
  void take(const PsAnswer& answer, std::span<const std::byte> payload);
  void copy_rows(const Message& message, std::span<const std::byte> payload) const;
  void finish(const Message& message, Status status, std::uint64_t version);

  // The server that is tried, or connected: that of the shard's number, or the next one, which has the copy.
  int tried() const;

  State& state_;
  const int server_;  // and its shard
  bool tries_copy_ = false;
  std::unique_ptr<Pipe> pipe_;
  std::vector<std::uint16_t> table_numbers_;  // of this process's tables at the server
  std::deque<Message> messages_;              // that have no answer, in order
  std::size_t sent_ = 0;                      // of them, the first ones
  std::uint64_t last_sequence_ = 0;
  std::uint64_t last_applied_ = 0;
  std::uint32_t min_clock_ = 0;
};

class ParameterClient::State {
 public:
  State(const WorkerOptions& worker_options, const Store& store_of_job, const JobKey& job_key, const Log& log_of_job)
      : options(worker_options), store(store_of_job), key(job_key), log(log_of_job) {
    incarnation = static_cast<std::uint64_t>(store.add(ps_keys::incarnations(options.worker), 1));
  }

  const WorkerOptions options;
  const Store store;
  const JobKey key;
  const Log& log;
  std::uint64_t incarnation = 0;
  Mutex mutex;
  std::atomic<int> callers{0};   // that want the mutex: a thread that waits for answers lets them in
  std::deque<TableSpec> tables;  // references stay valid
  std::vector<std::unique_ptr<Link>> links;
  std::uint32_t clock = 0;
  Status failure;  // of a call that nobody waits for
  Status ended;    // why no further call is possible

  std::uint32_t servers() const { return static_cast<std::uint32_t>(options.servers); }

  const TableSpec& spec_of(int table) const {
    if (table < 0 || static_cast<std::size_t>(table) >= tables.size()) throw InvalidArgument("there is no such table");
    return tables[static_cast<std::size_t>(table)];
  }

  void check() const {
    if (!ended.ok()) throw Error(ended);
  }

  void progress() {
    for (const auto& link : links) link->progress();
  }

  // Of a call that nobody waits for.
  void note_failure(const Status& status) {
    if (!status.ok() && failure.ok()) failure = status;
  }

  void progress_or_end() {
    try {
      progress();
    } catch (const Error& error) {
      end(error.status());
      throw;
    }
  }

  // A connection is lost for good: so is the client.
  void end(const Status& reason) {
    if (ended.ok()) ended = reason;
    for (const auto& link : links) link->close(ended);
  }

  // Makes progress until done(), or false at the deadline.
  template <typename Done>
  bool run_until(Deadline deadline, const Done& done) {
    AlarmClock alarm(store.alarm());
    Deadline late = options.stall_warning > Duration::zero() ? deadline_after(options.stall_warning) : Deadline::max();
    for (;;) {
      Link* awaited = nullptr;
      {
        const MutexLock lock(mutex);
        check();
        progress_or_end();
        if (done()) return true;
        const TimePoint now = Clock::now();
        for (const auto& link : links) {
          link->look_for_silence(now);
          if (!link->is_idle() && awaited == nullptr) awaited = link.get();
        }
        if (now >= deadline) return false;
        if (now >= late && awaited != nullptr) {
          log.warning("stalled: no answer from parameter server " + std::to_string(awaited->server()) +
                      ", which is stopped, or makes this worker wait for a slower one");
          late = Deadline::max();
        }
        if (awaited != nullptr && callers == 0) {
          awaited->wait(std::min({deadline, alarm.next(), deadline_after(kNap)}));
        }
      }
      if (awaited == nullptr) std::this_thread::sleep_for(1ms);
      while (callers > 0) std::this_thread::yield();
      look_at(alarm);
    }
  }

  // Ends all calls if the job has failed: nobody waits for them, and their memory may go.
  void look_at(AlarmClock& alarm) {
    try {
      alarm.look();
    } catch (const Error& error) {
      const MutexLock lock(mutex);
      end(error.status());
      throw;
    }
  }

  CallReference start(int table, PsOp op, const RowsCall& rows);
  CallReference ask_all(PsOp op, int table, const Bytes& payload);
  void wait_for(const CallReference& call, Deadline deadline, const char* what);
  void deal(Message prototype, std::span<const std::uint64_t> keys);
  void submit_range(Message&& prototype, std::uint32_t server, std::uint32_t first, std::uint32_t count);
  std::uint32_t rows_per_message(const TableSpec& spec, PsOp op) const;
};

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

// ---- Link

int ParameterClient::Link::tried() const { return (server_ + (tries_copy_ ? 1 : 0)) % state_.options.servers; }

std::unique_ptr<Pipe> ParameterClient::Link::open_pipe(Deadline deadline) {
  const WorkerOptions& options = state_.options;
  const std::int64_t start = state_.store.add(ps_keys::starts(tried()), 0);
  if (start == 0) throw PeerLost("it has not been started yet");
  const Deadline limit = std::min(deadline, deadline_after(kAttempt));
  const ServerPlace place = ServerPlace::parse(state_.store.get(ps_keys::place(tried(), start), limit));
  const bool shares = options.shares_memory && !place.local.empty() && place.host_key == options.host_key;
  ConnectionAttempt attempt(Address::parse(shares ? place.local : place.remote), state_.key, Purpose::parameters,
                            options.worker);
  while (!attempt.advance()) {
    if (Clock::now() >= limit) throw Timeout("it does not answer");
    wait_ready(attempt.fd(), attempt.is_connecting(), limit);
  }
  return make_worker_pipe(attempt.take(), shares, options.lease, options.wait, limit);
}

// Sends one request and waits for its answer, while nothing else is in flight.
PsAnswer ParameterClient::Link::ask(Pipe& pipe, PsRequest request, std::span<const std::byte> payload,
                                    Deadline deadline) {
  request.worker = static_cast<std::uint32_t>(state_.options.worker);
  request.incarnation = state_.incarnation;
  request.shard = static_cast<std::uint32_t>(server_);
  request.bytes = static_cast<std::uint32_t>(payload.size());
  std::byte* const to = pipe.room(ps_frame_bytes(payload.size()));
  std::memcpy(to, &request, sizeof request);
  if (!payload.empty()) std::memcpy(to + kPsHeaderBytes, payload.data(), payload.size());
  pipe.commit(ps_frame_bytes(payload.size()));
  for (;;) {
    pipe.flush();
    const auto input = pipe.input();
    if (input.size() >= kPsHeaderBytes) {
      const PsAnswer answer = parse_answer(input.first<kPsHeaderBytes>());
      if (input.size() >= ps_frame_bytes(answer.bytes)) {
        const auto text = input.subspan(kPsHeaderBytes, answer.bytes);
        const Status status(static_cast<StatusCode>(answer.status),
                            std::string(reinterpret_cast<const char*>(text.data()), text.size()));
        pipe.consume(ps_frame_bytes(answer.bytes));
        if (!status.ok()) throw Error(status);
        return answer;
      }
    }
    if (Clock::now() >= deadline) throw Timeout("it does not answer");
    pipe.look_for_silence(Clock::now());
    pipe.wait(std::min(deadline, deadline_after(kAttempt)));
  }
}

// Returns the table's number at the server.
std::uint16_t ParameterClient::Link::open_table(Pipe& pipe, const TableSpec& spec, Deadline deadline) {
  ByteWriter bytes;
  write_table_spec(spec, bytes);
  return static_cast<std::uint16_t>(ask(pipe, {.op = PsOp::open_table}, bytes.take(), deadline).rows);
}

// Until the server answers: it may not have begun, or be in the middle of starting again.
void ParameterClient::Link::connect(Deadline deadline) {
  const std::string name = "parameter server " + std::to_string(server_);
  AlarmClock alarm(state_.store.alarm());
  const TimePoint began = Clock::now();
  for (;;) {
    std::string cause;
    try {
      std::unique_ptr<Pipe> pipe = open_pipe(deadline);
      // Where another server may answer, a stopped one does not use up the time.
      const Deadline limit = state_.options.copies > 1 ? std::min(deadline, deadline_after(kAttempt)) : deadline;
      const PsHello hello{.workers = static_cast<std::uint32_t>(state_.options.workers)};
      const PsAnswer answer = ask(*pipe, {.op = PsOp::hello}, std::as_bytes(std::span(&hello, 1)), limit);
      if (last_applied_ > 0 && answer.rows == 0) {
        throw Aborted(name + " was started again and has lost its rows: it has no snapshot (HVD_SERVER_SNAPSHOT)");
      }
      if (pipe_ == nullptr) state_.clock = std::max(state_.clock, static_cast<std::uint32_t>(answer.version));
      table_numbers_.clear();
      for (const TableSpec& spec : state_.tables) table_numbers_.push_back(open_table(*pipe, spec, limit));
      pipe_ = std::move(pipe);
      return;
    } catch (const Error& error) {
      const bool is_elsewhere = error.code() == StatusCode::unsupported;
      if (!is_elsewhere && error.code() != StatusCode::peer_lost && error.code() != StatusCode::timeout) throw;
      cause = error.what();
      if (state_.options.copies > 1) tries_copy_ = !tries_copy_;
    }
    if (Clock::now() >= deadline) {
      throw PeerLost(name + " cannot be reached: " + cause);
    }
    alarm.look();
    if (Clock::now() - began > kRetry) std::this_thread::sleep_for(kRetry);
  }
}

void ParameterClient::Link::open_last(Deadline deadline) {
  while (!is_idle()) {
    if (Clock::now() >= deadline) throw Timeout("no answer from parameter server " + std::to_string(server_));
    progress();
    if (!is_idle()) pipe_->wait(deadline_after(1ms));
  }
  try {
    const std::uint16_t number = open_table(*pipe_, state_.tables.back(), deadline);
    table_numbers_.resize(state_.tables.size() - 1);  // a new connection has opened it before
    table_numbers_.push_back(number);
  } catch (const PeerLost&) {
    reconnect();  // opens all of them
  }
}

void ParameterClient::Link::forget_last() {
  table_numbers_.resize(std::min(table_numbers_.size(), state_.tables.size()));
}

void ParameterClient::Link::reconnect() {
  connect(deadline_after(state_.options.start_timeout));
  sent_ = 0;
}

void ParameterClient::Link::submit(Message&& message) {
  message.request.worker = static_cast<std::uint32_t>(state_.options.worker);
  message.request.incarnation = state_.incarnation;
  message.request.shard = static_cast<std::uint32_t>(server_);
  message.request.sequence = ++last_sequence_;
  if (message.request.op != PsOp::clock) message.request.clock = state_.clock;
  if (message.call) ++message.call->unanswered;
  messages_.push_back(std::move(message));
}

std::size_t ParameterClient::Link::payload_bytes(const Message& message) const {
  if (message.table < 0 || message.request.op == PsOp::learning_rate) return message.payload.size();
  const std::size_t rows = message.request.rows, width = state_.spec_of(message.table).width;
  return rows * (sizeof(std::uint64_t) + (message.request.op == PsOp::pull ? 0 : width * sizeof(float)));
}

void ParameterClient::Link::write_payload(const Message& message, std::byte* to) const {
  if (message.table < 0 || message.request.op == PsOp::learning_rate) {
    if (!message.payload.empty()) std::memcpy(to, message.payload.data(), message.payload.size());
    return;
  }
  const RowsCall& rows = message.rows;
  const std::size_t count = message.request.rows, width = state_.spec_of(message.table).width;
  const std::size_t row_bytes = width * sizeof(float);
  if (message.places.empty()) {
    std::memcpy(to, rows.keys.data() + message.first, count * sizeof(std::uint64_t));
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(to + i * sizeof(std::uint64_t), &rows.keys[message.places[i]], sizeof(std::uint64_t));
    }
  }
  if (message.request.op == PsOp::pull) return;
  std::byte* const values = to + count * sizeof(std::uint64_t);
  const std::size_t total = rows.values;
  if (message.places.empty()) {
    const std::size_t begin = message.first * width, there = std::min(count * width, total - begin);
    std::memcpy(values, rows.gradients + begin, there * sizeof(float));
    std::memset(values + there * sizeof(float), 0, count * row_bytes - there * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(values + i * row_bytes, rows.gradients + message.places[i] * width, row_bytes);
  }
}

// False: there is no room yet.
bool ParameterClient::Link::send(const Message& message) {
  const std::size_t bytes = payload_bytes(message);
  std::byte* const to = pipe_->room(ps_frame_bytes(bytes));
  if (to == nullptr) return false;
  PsRequest request = message.request;
  request.bytes = static_cast<std::uint32_t>(bytes);
  if (message.table >= 0) request.table = table_numbers_[static_cast<std::size_t>(message.table)];
  std::memcpy(to, &request, sizeof request);
  write_payload(message, to + kPsHeaderBytes);
  pipe_->commit(ps_frame_bytes(bytes));
  return true;
}

void ParameterClient::Link::progress() {
  if (is_idle()) return;
  try {
    while (sent_ < messages_.size() && send(messages_[sent_])) ++sent_;
    pipe_->flush();
    take_answers();
  } catch (const PeerLost& error) {
    state_.log.warning("parameter server " + std::to_string(server_) + ": " + error.what() + "; connecting again");
    reconnect();
  }
}

void ParameterClient::Link::take_answers() {
  while (!is_idle()) {  // a server whose workers have all left ends after its last answer
    const auto input = pipe_->input();
    if (input.size() < kPsHeaderBytes) break;
    const PsAnswer answer = parse_answer(input.first<kPsHeaderBytes>());
    const std::size_t frame = ps_frame_bytes(answer.bytes);
    if (input.size() < frame) break;
    take(answer, input.subspan(kPsHeaderBytes, answer.bytes));
    pipe_->consume(frame);
  }
  pipe_->flush();
}

void ParameterClient::Link::take(const PsAnswer& answer, std::span<const std::byte> payload) {
  if (sent_ == 0 || messages_.front().request.sequence != answer.sequence) {
    throw Internal("parameter server " + std::to_string(server_) + " has answered what was not asked");
  }
  const Message& message = messages_.front();
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (answer.status != 0) {
    finish(message, Status(static_cast<StatusCode>(answer.status), std::string(text)), 0);
  } else {
    if (is_numbered(message.request.op)) last_applied_ = message.request.sequence;
    min_clock_ = answer.min_clock;
    if (message.request.op == PsOp::stats && message.call) message.call->text->append(text);
    if (message.rows.rows != nullptr) copy_rows(message, payload);
    finish(message, Status(), answer.version);
  }
  messages_.pop_front();
  --sent_;
}

void ParameterClient::Link::copy_rows(const Message& message, std::span<const std::byte> payload) const {
  const std::size_t count = message.request.rows, width = state_.spec_of(message.table).width;
  if (payload.size() != count * width * sizeof(float)) {
    throw Internal("parameter server " + std::to_string(server_) + " has answered with rows of another size");
  }
  if (message.places.empty()) {
    const std::size_t begin = message.first * width, there = std::min(count * width, message.rows.values - begin);
    std::memcpy(message.rows.rows + begin, payload.data(), there * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(message.rows.rows + message.places[i] * width, payload.data() + i * width * sizeof(float),
                width * sizeof(float));
  }
}

void ParameterClient::Link::finish(const Message& message, Status status, std::uint64_t version) {
  if (!message.call) {
    return state_.note_failure(status);
  }
  Call& call = *message.call;
  --call.unanswered;
  call.version = std::min(call.version, version);
  if (!status.ok() && call.status.ok()) call.status = std::move(status);
  if (call.dropped && call.unanswered == 0) state_.note_failure(call.status);
}

void ParameterClient::Link::close(const Status& reason) {
  for (const Message& message : messages_) finish(message, reason, 0);
  messages_.clear();
  sent_ = 0;
  pipe_.reset();
}

// ---- State

std::uint32_t ParameterClient::State::rows_per_message(const TableSpec& spec, PsOp op) const {
  const std::size_t row = sizeof(std::uint64_t) + (op == PsOp::pull ? 0 : spec.width * sizeof(float));
  const std::size_t answered = op == PsOp::push || op == PsOp::fill ? 1 : spec.width * sizeof(float);
  const std::size_t rows = std::min(kMaxPsPayload / row, kMaxPsPayload / answered);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(rows, 1, kMaxPsRows));
}

void ParameterClient::State::submit_range(Message&& prototype, std::uint32_t server, std::uint32_t first,
                                          std::uint32_t count) {
  const std::uint32_t at_most = rows_per_message(spec_of(prototype.table), prototype.request.op);
  if (count <= at_most && count > 0) {
    prototype.first = first;
    prototype.request.rows = count;
    return links[server]->submit(std::move(prototype));
  }
  for (std::uint32_t done = 0; done < count;) {
    Message message = prototype;
    message.first = first + done;
    message.request.rows = std::min(count - done, at_most);
    done += message.request.rows;
    links[server]->submit(std::move(message));
  }
}

// To each server its rows: as they lie in memory where that is all of them or a range, else one by one.
void ParameterClient::State::deal(Message prototype, std::span<const std::uint64_t> keys) {
  const TableSpec& spec = spec_of(prototype.table);
  const auto count = static_cast<std::uint32_t>(keys.size());
  if (servers() == 1) return submit_range(std::move(prototype), 0, 0, count);
  if (prototype.rows.is_whole) {
    for (std::uint32_t first = 0; first < count;) {
      const std::uint32_t server = shard_of(spec, first, servers());
      std::uint32_t end = first + 1;
      while (end < count && shard_of(spec, end, servers()) == server) ++end;
      submit_range(Message(prototype), server, first, end - first);
      first = end;
    }
    return;
  }
  std::vector<std::vector<std::uint32_t>> places(servers());
  for (std::uint32_t i = 0; i < count; ++i) places[shard_of(spec, keys[i], servers())].push_back(i);
  const std::uint32_t at_most = rows_per_message(spec, prototype.request.op);
  for (std::uint32_t server = 0; server < servers(); ++server) {
    const auto& own = places[server];
    for (std::size_t first = 0; first < own.size(); first += at_most) {
      Message message = prototype;
      const std::size_t end = std::min(own.size(), first + at_most);
      message.places.assign(own.begin() + static_cast<std::ptrdiff_t>(first),
                            own.begin() + static_cast<std::ptrdiff_t>(end));
      message.request.rows = static_cast<std::uint32_t>(message.places.size());
      links[server]->submit(std::move(message));
    }
  }
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
  Message prototype{.request = {.op = op}, .table = table, .call = call, .rows = rows};
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
  deal(std::move(prototype), call->own_keys.empty() ? rows.keys : call->own_keys);
  progress_or_end();
  return call;
}

ParameterClient::CallReference ParameterClient::State::ask_all(PsOp op, int table, const Bytes& payload) {
  const CallerLock lock(mutex, callers);
  check();
  auto call = std::make_shared<Call>();
  for (const auto& link : links) {
    link->submit({.request = {.op = op, .clock = clock}, .table = table, .call = call, .payload = payload});
  }
  return call;
}

void ParameterClient::State::wait_for(const CallReference& call, Deadline deadline, const char* what) {
  if (!run_until(deadline, [&] { return call->unanswered == 0; })) {
    std::string missing;
    const CallerLock lock(mutex, callers);
    for (const auto& link : links) {
      if (!link->is_idle()) missing += (missing.empty() ? "" : ", ") + std::to_string(link->server());
    }
    throw Timeout(std::string(what) + ": no answer from parameter server " + missing);
  }
  if (!call->status.ok()) throw Error(call->status);
}

// ---- ParameterClient

ParameterClient::ParameterClient(const WorkerOptions& options, const Store& store, const JobKey& key, const Log& log)
    : state_(std::make_unique<State>(options, store, key, log)) {
  const Deadline deadline = deadline_after(options.start_timeout);
  for (int server = 0; server < options.servers; ++server) {
    state_->links.push_back(std::make_unique<Link>(*state_, server));
    state_->links.back()->connect(deadline);
  }
}

ParameterClient::~ParameterClient() = default;

int ParameterClient::open(const TableSpec& spec) {
  check_table_spec(spec);
  if (state_->options.copies > 1 && !spec.dense && spec.rows > 0) {
    throw InvalidArgument("table '" + spec.name +
                          "': a limit of rows is not supported with two copies of a shard (HVD_SERVER_COPIES)");
  }
  const CallerLock lock(state_->mutex, state_->callers);
  state_->check();
  for (std::size_t i = 0; i < state_->tables.size(); ++i) {
    if (state_->tables[i].name != spec.name) continue;
    if (!(state_->tables[i] == spec)) {
      throw InvalidArgument("table '" + spec.name + "' is open already, with other arguments");
    }
    return static_cast<int>(i);
  }
  state_->tables.push_back(spec);
  try {
    for (const auto& link : state_->links) link->open_last(deadline_after(state_->options.start_timeout));
  } catch (const Error& error) {
    const bool is_refused = error.code() == StatusCode::mismatch || error.code() == StatusCode::invalid_argument;
    if (!is_refused) state_->end(error.status());  // its answer may still come
    state_->tables.pop_back();
    for (const auto& link : state_->links) link->forget_last();
    throw;
  }
  return static_cast<int>(state_->tables.size() - 1);
}

int ParameterClient::servers() const { return state_->options.servers; }

const TableSpec& ParameterClient::spec(int table) const {
  const CallerLock lock(state_->mutex, state_->callers);
  return state_->spec_of(table);
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
  if (call->unanswered > 0 && state_->ended.ok()) state_->progress_or_end();
  return call->unanswered == 0;
}

std::uint64_t ParameterClient::version(const CallReference& call) {
  return call->version == std::numeric_limits<std::uint64_t>::max() ? 0 : call->version;  // it had no rows
}

void ParameterClient::drop(const CallReference& call) {
  const CallerLock lock(state_->mutex, state_->callers);
  call->dropped = true;
  if (call->unanswered == 0 && !call->told) state_->note_failure(call->status);
}

bool ParameterClient::flush(Deadline deadline) {
  const auto is_idle = [&] {
    return std::ranges::all_of(state_->links, [](const auto& link) { return link->is_idle(); });
  };
  if (!state_->run_until(deadline, is_idle)) return false;
  const CallerLock lock(state_->mutex, state_->callers);
  const Status failure = std::exchange(state_->failure, Status());
  if (!failure.ok()) throw Error(failure);
  return true;
}

void ParameterClient::advance_clock() {
  const CallerLock lock(state_->mutex, state_->callers);
  state_->check();
  ++state_->clock;
  for (const auto& link : state_->links) {
    link->submit({.request = {.op = PsOp::clock, .clock = state_->clock}, .call = nullptr});
  }
  state_->progress_or_end();
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

void ParameterClient::set_learning_rate(int table, float rate, Deadline deadline) {
  ByteWriter payload;
  payload.put(rate);
  state_->wait_for(state_->ask_all(PsOp::learning_rate, table, payload.take()), deadline, "set_learning_rate()");
}

std::vector<std::string> ParameterClient::stats(Deadline deadline) {
  std::vector<std::string> texts(state_->links.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CallReference call;
    {
      const CallerLock lock(state_->mutex, state_->callers);
      state_->check();
      call = std::make_shared<Call>();
      call->text = &texts[i];
      state_->links[i]->submit({.request = {.op = PsOp::stats}, .call = call});
    }
    state_->wait_for(call, deadline, "stats()");
  }
  return texts;
}

namespace {

Bytes bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

}  // namespace

void ParameterClient::snapshot(const std::string& folder, Deadline deadline) {
  state_->wait_for(state_->ask_all(PsOp::snapshot, -1, bytes_of(folder)), deadline, "snapshot()");
}

void ParameterClient::restore(const std::string& folder, Deadline deadline) {
  state_->wait_for(state_->ask_all(PsOp::restore, -1, bytes_of(folder)), deadline, "restore()");
}

void ParameterClient::leave(Deadline deadline) {
  state_->wait_for(state_->ask_all(PsOp::leave, -1, {}), deadline, "leave()");
}

}  // namespace hvd
