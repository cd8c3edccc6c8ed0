#include "parameters/replication.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/net/byte_codec.h"

namespace hvd {

namespace {

constexpr Duration kSearchInterval = std::chrono::milliseconds(50);
constexpr Duration kAttemptTime = std::chrono::seconds(1);
constexpr std::size_t kStateBytes = std::size_t{128} << 10;                // in a request
constexpr std::size_t kMaxParts = 4;                                       // of the state, under way
constexpr std::size_t kEvictedRows = kStateBytes / sizeof(std::uint64_t);  // in a request
constexpr std::size_t kMaxPart = std::size_t{1} << 32;                     // of a state: what a clock's pushes may be

PsRequest for_replica(PsRequest request) {
  if (request.op == PsOp::push_pull) request.op = PsOp::push;
  return request;
}

std::uint32_t parts_of(const ServerOptions& options) { return static_cast<std::uint32_t>(options.parts); }

}  // namespace

bool ShardGeneration::claim(const Store& store, std::uint32_t shard, const Log& log) {
  try {
    const bool is_first = store.add(ps_keys::generation(shard, number), 1) == 1;
    ++number;
    return is_first;
  } catch (const Error& error) {
    log.warning(std::string("cannot ask who is to go on with a shard: ") + error.what());
    return false;
  }
}

Replication::Replication(const Shard& shard, int server, int peer, Duration lease, const Store& store,
                         const JobKey& key, const Log& log)
    : shard_(shard), server_(server), peer_(peer), lease_(lease), store_(store), key_(key), log_(log) {}

int Replication::fd() const { return pipe_ ? pipe_->fd() : attempt_ ? attempt_->fd() : -1; }

void Replication::notice_event() {
  if (pipe_) pipe_->notice_event();
}

Deadline Replication::next_deadline() const {
  if (pipe_) return pipe_->next_lease_check();
  return attempt_ ? deadline_after(kSearchInterval) : next_search_;
}

void Replication::look_for_peer() {
  if (Clock::now() < next_search_) return;
  next_search_ = deadline_after(kSearchInterval);
  const std::int64_t start = store_.add(ps_keys::starts(peer_), 0);
  if (start == 0) return;
  const ServerAddresses addresses =
      decode_value<ServerAddresses>(store_.get(ps_keys::place(peer_, start), deadline_after(kPlaceTime)));
  attempt_ = std::make_unique<ConnectionAttempt>(Address::parse(addresses.remote), key_, Purpose::parameters, server_);
  attempt_ends_ = deadline_after(kAttemptTime);
}

bool Replication::progress(const ShardGeneration& generation) {
  try {
    bool is_new = false;
    if (!pipe_ && !attempt_) {
      look_for_peer();
      is_new = attempt_ != nullptr;
    }
    if (attempt_ && Clock::now() > attempt_ends_) throw Timeout("it does not answer");
    if (attempt_ && attempt_->advance()) {
      pipe_ = make_server_pipe(attempt_->take(), false, lease_, Deadline::max());
      attempt_.reset();
      begin_anew();
    }
    if (broken_) throw PeerLost(*broken_);
    if (pipe_) {
      pipe_->check_lease(Clock::now());
      if (send_evicted()) send_state(generation);
      pipe_->flush();
      take_answers();
    }
    return is_new;
  } catch (const Error& error) {
    const bool was_in_step = std::exchange(in_step_, false);
    pipe_.reset();
    attempt_.reset();
    state_.reset();
    prepared_ = 0;
    answered_ = sent_;  // no answer comes any more
    state_sent_.clear();
    evicted_.clear();
    broken_.reset();
    if (error.code() == StatusCode::aborted) is_refused_ = true;
    if (was_in_step || is_refused_) throw PeerLost("parameter server " + std::to_string(peer_) + ": " + error.what());
    if (error.code() == StatusCode::internal) log_.warning(std::string("a replica of a shard: ") + error.what());
    return false;
  }
}

void Replication::begin_anew() {
  in_step_ = false;
  if (!pipe_) return;
  state_ = StateTransfer{};
  evicted_.clear();
}

void Replication::send_state(const ShardGeneration& generation) {
  while (state_) {
    auto& [position, part, part_sent] = *state_;
    if (!position.begun && part.empty()) {
      if (!send({.op = PsOp::follow}, {})) return;
      part = shard_.write_state(position);
    }
    if (part_sent == part.size()) {
      if (state_sent_.size() >= kMaxParts) return;  // requests go on between parts
      part = shard_.write_state(position);
      part_sent = 0;
    }
    if (part.empty()) {
      if (!send({.op = PsOp::in_step}, std::as_bytes(std::span(&generation.number, 1)))) return;
      in_step_ = true;
      state_.reset();
      return;
    }
    const auto rest = std::span<const std::byte>(part).subspan(part_sent);
    const auto now = rest.first(std::min(rest.size(), kStateBytes));
    const std::uint64_t number = sent_;
    if (!send({.op = PsOp::state, .flags = now.size() < rest.size() ? kGoesOn : std::uint8_t{0}}, now)) return;
    if (part_sent == 0) state_sent_.push_back(number);
    part_sent += now.size();
  }
}

bool Replication::write(const PsRequest& prototype, std::span<const std::byte> payload) {
  PsRequest request = prototype;
  request.shard = shard_.number();
  request.bytes = static_cast<std::uint32_t>(payload.size());
  const std::size_t bytes = ps_frame_bytes(payload.size());
  std::byte* to = nullptr;
  try {
    to = pipe_->room(bytes);
  } catch (const PeerLost& error) {  // for progress(): it does not concern whoever sends
    broken_ = error.what();
  }
  if (to == nullptr) return false;
  std::memcpy(to, &request, sizeof request);
  if (!payload.empty()) std::memcpy(to + kPsHeaderBytes, payload.data(), payload.size());
  prepared_ = bytes;
  return true;
}

bool Replication::send(const PsRequest& request, std::span<const std::byte> payload) {
  if (!write(request, payload)) return false;
  forward();
  return true;
}

// A part of the state that was read before the request goes first: it has older rows.
bool Replication::prepare(const PsRequest& request, std::span<const std::byte> payload) {
  if (!pipe_ || is_state_to_begin()) return true;  // the state, which is sent later, will have it
  if ((state_ && state_->part_sent < state_->part.size()) || !send_evicted()) return false;
  return write(request, payload);
}

void Replication::forward(const std::vector<EvictedRows>& evicted) {
  if (!pipe_ || is_state_to_begin()) return;  // the state, which is sent later, will not have them
  for (const auto& [table, keys] : evicted) {
    for (auto first = keys.begin(); first != keys.end();) {
      const auto end = first + std::min<std::ptrdiff_t>(kEvictedRows, keys.end() - first);
      evicted_.push_back({table, {first, end}});
      first = end;
    }
  }
}

// Returns false if there is no room yet for all of them.
bool Replication::send_evicted() {
  for (; !evicted_.empty(); evicted_.pop_front()) {
    const auto& [table, keys] = evicted_.front();
    const PsRequest request{.op = PsOp::evicted, .table = table, .rows = static_cast<std::uint32_t>(keys.size())};
    if (!send(request, std::as_bytes(std::span(keys)))) return false;
  }
  return true;
}

void Replication::forward() {
  if (prepared_ == 0) return;
  pipe_->commit(std::exchange(prepared_, 0));
  ++sent_;
}

void Replication::cancel() {
  if (std::exchange(prepared_, 0) != 0) pipe_->commit(0);
}

void Replication::take_answers() {
  for (;;) {
    const auto input = pipe_->input();
    if (input.size() < kPsHeaderBytes) return;
    const PsAnswer answer = parse_answer(input.first<kPsHeaderBytes>());
    if (input.size() < ps_frame_bytes(answer.bytes)) return;
    const auto text = input.subspan(kPsHeaderBytes, answer.bytes);
    const std::string cause(reinterpret_cast<const char*>(text.data()), answer.status == 0 ? 0 : text.size());
    pipe_->consume(ps_frame_bytes(answer.bytes));
    if (answer.status != 0) throw Error(static_cast<StatusCode>(answer.status), cause);
    ++answered_;
    while (!state_sent_.empty() && state_sent_.front() < answered_) state_sent_.pop_front();
  }
}

ReplicatedShard::ReplicatedShard(std::uint32_t number, const ServerOptions& options, const JobKey& key)
    : shard_(number, static_cast<std::uint32_t>(options.shards()), options.memory / parts_of(options), job_number(key),
             parts_of(options)) {}

std::optional<PsAnswer> ReplicatedShard::apply(const PsRequest& request, std::span<const std::byte> sent,
                                               std::span<std::byte> answer) {
  const std::span<const std::byte> payload = shard_.compensate(request, sent);
  if (!replication_ || !changes_shard(request.op)) return shard_.apply(request, payload, answer);
  if (!replication_->prepare(for_replica(request), payload)) return std::nullopt;
  try {
    const PsAnswer result = shard_.apply(request, payload, answer);
    replication_->forward();
    replication_->forward(shard_.take_evicted());
    return result;
  } catch (...) {
    replication_->cancel();
    replication_->forward(shard_.take_evicted());  // a refused request may have evicted rows
    throw;
  }
}

bool ReplicatedShard::refuse(const PsRequest& request, const std::string& why) {
  PsRequest refusal = request;
  refusal.op = PsOp::refused;
  refusal.rows = 0;
  return apply(refusal, std::as_bytes(std::span(why)), {}).has_value();
}

void ReplicatedShard::receive(const PsRequest& request, std::span<const std::byte> payload) {
  if (request.op == PsOp::state) {
    if (part_.size() + payload.size() > kMaxPart) throw Internal("a part of a shard's state exceeds 4 GiB");
    part_.insert(part_.end(), payload.begin(), payload.end());
    if ((request.flags & kGoesOn) == 0) shard_.read_state(std::exchange(part_, {}));
  } else {
    shard_.apply(request, payload, {});
  }
}

}  // namespace hvd
