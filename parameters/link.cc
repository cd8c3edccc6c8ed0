#include "parameters/link.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "parameters/shard_directory.h"

namespace hvd {

namespace {

constexpr Duration kRetryInterval = std::chrono::milliseconds(20);
constexpr Duration kMaxTurn = std::chrono::milliseconds(100);  // between two tries; more is the caller's time

// Once one of these was applied, a server without rows is one that has lost them.
constexpr bool changes_rows(PsOp op) { return is_numbered(op) || op == PsOp::fill || op == PsOp::restore; }

}  // namespace

Link::Link(const WorkerIdentity& worker, int shard, const std::deque<TableSpec>& tables, Status& failure)
    : worker_(worker), shard_(shard), server_(shard % worker.options.servers), tables_(tables), failure_(failure) {
  begin_connecting();
}

std::string Link::name() const { return "parameter server " + std::to_string(server_); }

// With two copies that of the shard's number, or the next one, which has the replica.
int Link::find_server() const {
  const int servers = worker_.options.servers;
  if (worker_.options.copies > 1) return (shard_ + (tries_replica_ ? 1 : 0)) % servers;
  return ShardDirectory(worker_.store, servers).server_of(shard_);
}

// ---- The connection

void Link::begin_connecting() {
  pipe_.reset();
  sent_ = 0;
  spent_ = Duration::zero();
  last_try_ = next_try_ = Clock::now();
}

bool Link::connect() {
  if (pipe_) return true;
  const TimePoint now = Clock::now();
  spent_ += std::min<Duration>(now - std::exchange(last_try_, now), kMaxTurn);
  if (!attempt_ && now < next_try_) return false;
  try {
    if (!attempt_) {
      server_ = find_server();
      attempt_ =
          std::make_unique<ServerAttempt>(worker_, shard_, server_, confirmed_clock_, tables_, table_numbers_.size());
    }
    if (!attempt_->advance()) return false;
  } catch (const Error& error) {
    put_off(error);
    return false;
  }
  adopt(*std::exchange(attempt_, nullptr));
  return true;
}

void Link::adopt(ServerAttempt& attempt) {
  const PsAnswer& greeting = attempt.greeting();
  if (has_changed_ && greeting.rows == 0) {
    throw Aborted(name() + " was started again and has lost its rows: it has no snapshot (HVD_SERVER_SNAPSHOT)");
  }
  confirmed_clock_ = std::max(confirmed_clock_, static_cast<std::uint32_t>(greeting.version));
  table_numbers_ = attempt.take_table_numbers();
  for (const std::size_t table : filled_) {
    if (attempt.has_values(table)) continue;
    throw Aborted(name() + " was started again from a snapshot that lacks the values of table '" + tables_[table].name +
                  "'");
  }
  pipe_ = attempt.take_pipe();
}

// The server may not have begun, be in the middle of starting again, or have left the shard to the other one.
void Link::put_off(const Error& cause) {
  attempt_.reset();
  const StatusCode code = cause.code();
  if (code != StatusCode::peer_lost && code != StatusCode::timeout && code != StatusCode::unsupported) {
    throw Error(cause.status());
  }
  if (spent_ >= worker_.options.start_timeout) {
    throw PeerLost(name() + " cannot be reached: " + cause.what());
  }
  if (worker_.options.copies > 1) tries_replica_ = !tries_replica_;
  if (spent_ > kRetryInterval) next_try_ = Clock::now() + kRetryInterval;
}

bool Link::wait(Deadline deadline) {
  if (pipe_) {
    pipe_->wait(deadline);
  } else if (attempt_) {
    attempt_->wait(deadline);
  } else {
    return false;
  }
  return true;
}

void Link::check_lease(TimePoint now) {
  if (pipe_) pipe_->check_lease(now);
}

void Link::forget_tables(std::size_t count) {
  table_numbers_.resize(std::min(table_numbers_.size(), count));
  filled_.erase(filled_.lower_bound(count), filled_.end());
  attempt_.reset();  // it may open them
}

void Link::close(const Status& reason) {
  for (const ShardMessage& message : messages_) complete_part(message, reason, 0);
  messages_.clear();
  sent_ = 0;
  pipe_.reset();
  attempt_.reset();
}

// ---- Requests

void Link::submit(ShardMessage&& message, std::uint32_t clock) {
  message.request.worker = static_cast<std::uint32_t>(worker_.options.worker);
  message.request.incarnation = worker_.incarnation;
  message.request.shard = static_cast<std::uint32_t>(shard_);
  message.request.sequence = ++last_sequence_;
  message.request.clock = clock;
  if (message.call) ++message.call->unanswered;
  messages_.push_back(std::move(message));
}

void Link::progress() {
  if (is_idle() || !connect()) return;
  try {
    while (sent_ < std::min(messages_.size(), kMaxPsUnanswered) && send(messages_[sent_])) ++sent_;
    pipe_->flush();
    take_answers();
  } catch (const PeerLost& error) {
    worker_.log.warning(name() + ": " + error.what() + "; connecting again");
    begin_connecting();
  }
}

// False: there is no room yet.
bool Link::send(const ShardMessage& message) {
  const std::size_t bytes = message.payload_bytes();
  std::byte* const to = pipe_->room(ps_frame_bytes(bytes));
  if (to == nullptr) return false;
  PsRequest request = message.request;
  request.bytes = static_cast<std::uint32_t>(bytes);
  if (message.table >= 0 && request.op != PsOp::open_table) {
    request.table = table_numbers_[static_cast<std::size_t>(message.table)];
  }
  std::memcpy(to, &request, sizeof request);
  message.write_payload(to + kPsHeaderBytes);
  pipe_->commit(ps_frame_bytes(bytes));
  return true;
}

// ---- Answers

void Link::take_answers() {
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

void Link::take(const PsAnswer& answer, std::span<const std::byte> payload) {
  if (sent_ == 0 || messages_.front().request.sequence != answer.sequence) {
    throw Internal(name() + " sent an answer out of order");
  }
  const ShardMessage& message = messages_.front();
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (answer.status != 0) {
    complete_part(message, Status(static_cast<StatusCode>(answer.status), std::string(text)), 0);
  } else {
    has_changed_ = has_changed_ || changes_rows(message.request.op) || answer.version > 0;
    min_clock_ = std::max(min_clock_, answer.min_clock);
    if (message.has_rows() && message.request.op != PsOp::fill) {
      const auto table = static_cast<std::size_t>(message.table);
      if (tables_[table].filled) filled_.insert(table);
    }
    if (message.request.op == PsOp::open_table) table_numbers_.push_back(static_cast<std::uint16_t>(answer.rows));
    if (message.request.op == PsOp::clock) confirmed_clock_ = std::max(confirmed_clock_, message.request.clock);
    if (message.request.op == PsOp::stats) message.call->texts[message.request.shard] = text;
    if (message.wants_rows() && !message.copy_rows(payload)) {
      throw Internal(name() + " has answered with rows of another size");
    }
    complete_part(message, Status(), answer.version);
    if (message.wants_rows()) message.cache_rows(payload);
  }
  messages_.pop_front();
  --sent_;
}

void Link::complete_part(const ShardMessage& message, Status status, std::uint64_t version) {
  if (message.cache != nullptr && message.has_gradients()) {
    for (std::size_t i = 0; i < message.request.rows; ++i) message.cache->end_push(message.key(i));
  }
  if (!message.call) {
    if (!status.ok() && failure_.ok()) failure_ = status;
    return;
  }
  ParameterClient::Call& call = *message.call;
  --call.unanswered;
  call.version = std::min(call.version, version);
  if (!status.ok() && call.status.ok()) call.status = std::move(status);
  if (call.unanswered == 0 && call.at_end) call.at_end();
  if (call.dropped && call.unanswered == 0 && failure_.ok()) failure_ = call.status;
}

}  // namespace hvd
