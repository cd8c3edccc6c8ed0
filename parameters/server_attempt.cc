#include "parameters/server_attempt.h"

#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "parameters/server.h"

namespace hvd {

namespace {

constexpr Duration kConnectTime = std::chrono::seconds(1);

}  // namespace

ServerAttempt::ServerAttempt(const WorkerIdentity& worker, int shard, int server, std::uint32_t clock,
                             const std::deque<TableSpec>& tables, std::size_t count)
    : worker_(worker),
      shard_(shard),
      clock_(clock),
      tables_(tables),
      count_(count),
      limit_(deadline_after(kConnectTime)) {
  const std::int64_t start = worker.store.add(ps_keys::starts(server), 0);
  if (start == 0) throw PeerLost("it has not been started yet");
  const auto addresses =
      decode_value<ServerAddresses>(worker.store.get(ps_keys::place(server, start), deadline_after(kPlaceTime)));
  const WorkerOptions& options = worker.options;
  shares_memory_ = options.shares_memory && !addresses.local.empty() && addresses.host_key == options.host_key;
  connection_.emplace(Address::parse(shares_memory_ ? addresses.local : addresses.remote), worker.key,
                      Purpose::parameters, options.worker);
}

bool ServerAttempt::advance() {
  if (pipe_ || advance_connection()) {
    while (const auto answer = take_answer()) {
      if (greeting_) {
        table_numbers_.push_back(static_cast<std::uint16_t>(answer->rows));
        has_values_.push_back(answer->applied != 0);
      } else {
        greeting_ = answer;
      }
      if (table_numbers_.size() == count_) return true;
      ask_next();
    }
  }
  if (Clock::now() >= limit_) throw Timeout("it does not answer");
  return false;
}

// Returns true once there is a pipe, with the greeting on its way.
bool ServerAttempt::advance_connection() {
  is_authenticated_ = is_authenticated_ || connection_->advance();
  if (!is_authenticated_) return false;
  if (shares_memory_ && !wait_ready(connection_->fd(), false, Clock::now())) return false;  // the memory comes
  const WorkerOptions& options = worker_.options;
  pipe_ = make_worker_pipe(connection_->take(), shares_memory_, options.lease, options.wait, Clock::now());
  connection_.reset();
  // Where another server may answer, a stopped one does not use up the time.
  limit_ = deadline_after(options.copies > 1 ? kConnectTime : options.start_timeout);
  const PsHello hello{.workers = static_cast<std::uint32_t>(options.workers)};
  ask(PsOp::hello, std::as_bytes(std::span(&hello, 1)));
  return true;
}

void ServerAttempt::ask_next() {
  ByteWriter spec;
  spec.put(tables_[table_numbers_.size()]);
  ask(PsOp::open_table, spec.take());
}

// Nothing else is under way, so that there is room.
void ServerAttempt::ask(PsOp op, std::span<const std::byte> payload) {
  const PsRequest request{.op = op,
                          .incarnation = worker_.incarnation,
                          .worker = static_cast<std::uint32_t>(worker_.options.worker),
                          .clock = clock_,
                          .shard = static_cast<std::uint32_t>(shard_),
                          .bytes = static_cast<std::uint32_t>(payload.size())};
  std::byte* const to = pipe_->room(ps_frame_bytes(payload.size()));
  std::memcpy(to, &request, sizeof request);
  std::memcpy(to + kPsHeaderBytes, payload.data(), payload.size());
  pipe_->commit(ps_frame_bytes(payload.size()));
}

// Throws the error that it is.
std::optional<PsAnswer> ServerAttempt::take_answer() {
  pipe_->check_lease(Clock::now());
  pipe_->flush();
  const auto input = pipe_->input();
  if (input.size() < kPsHeaderBytes) return std::nullopt;
  const PsAnswer answer = parse_answer(input.first<kPsHeaderBytes>());
  if (input.size() < ps_frame_bytes(answer.bytes)) return std::nullopt;
  const auto text = input.subspan(kPsHeaderBytes, answer.bytes);
  const Status status(static_cast<StatusCode>(answer.status),
                      std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  pipe_->consume(ps_frame_bytes(answer.bytes));
  if (!status.ok()) throw Error(status);
  return answer;
}

void ServerAttempt::wait(Deadline deadline) {
  if (pipe_) {
    pipe_->wait(deadline);
  } else {
    wait_ready(connection_->fd(), connection_->is_connecting(), deadline);
  }
}

}  // namespace hvd
