#include "parameters/held_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/net/job_number.h"
#include "parameters/shard_places.h"
#include "parameters/snapshot.h"

namespace hvd {

namespace {

constexpr std::size_t kMaxPart = std::size_t{1} << 32;  // of a state: what a clock's pushes may be

PsRequest for_replica(PsRequest request) {
  if (request.op == PsOp::push_pull) request.op = PsOp::push;
  return request;
}

std::uint32_t parts_of(const ServerOptions& options) { return static_cast<std::uint32_t>(options.parts); }

}  // namespace

HeldShard::HeldShard(std::uint32_t number, Role role, const ServerOptions& options, const Store& store,
                     const JobKey& key, const Log& log)
    : options_(options),
      store_(store),
      key_(key),
      log_(log),
      shard_(number, static_cast<std::uint32_t>(options.shards()), options.memory / parts_of(options), job_number(key),
             parts_of(options)),
      role_(role) {
  if (role != Role::primary) shard_.follow();
  if (options.copies > 1) shard_.keep_evicted(true);
}

// ---- The primary

void HeldShard::begin_with_replica() {
  opens_ = deadline_after(options_.start_timeout);
  replicate();
}

bool HeldShard::restore_own(const std::string& folder) { return restore_own_snapshot(shard_, folder); }

void HeldShard::replicate() {
  const int peer = number() == options_.server ? (number() + 1) % options_.servers : number();
  replication_ = std::make_unique<Replication>(shard_, options_.server, peer, options_.lease, store_, key_, log_);
}

bool HeldShard::progress() {
  if (!is_primary() || !replication_) return false;
  try {
    const bool is_new = replication_->progress(generation_);
    if (replication_->is_in_step()) opens_.reset();
    if (destination_ && is_replicating() && is_replicated(position())) finish_move();
    return is_new;
  } catch (const PeerLost& error) {
    if (destination_) {
      give_up_move(error);
    } else if (replication_->is_refused()) {
      step_down();
    } else {
      go_on_alone(error);
    }
    return false;
  }
}

void HeldShard::notice_event() {
  if (replication_) replication_->notice_event();
}

void HeldShard::check_time(TimePoint now) {
  if (!opens_ || now < *opens_) return;
  opens_.reset();
  go_on_alone(Timeout("no other server has come to keep it"));
}

Deadline HeldShard::next_deadline() const {
  const Deadline of_replica = replication_ ? replication_->next_deadline() : Deadline::max();
  return opens_ ? std::min(*opens_, of_replica) : of_replica;
}

// The server that has the replica is lost; unless it takes this one for lost, and was faster.
void HeldShard::go_on_alone(const Error& cause) {
  if (!claim()) return step_down();
  if (shard_.is_over()) return;
  log_.warning("shard " + std::to_string(number()) + " has no copy any more: " + cause.what());
}

void HeldShard::step_down() {
  log_.warning("shard " + std::to_string(number()) + " goes on at another server");
  role_ = Role::none;
  replication_.reset();
}

void HeldShard::move_to(int server) {
  if (!is_primary() || replication_) return;
  destination_ = server;
  shard_.keep_evicted(true);
  replication_ = std::make_unique<Replication>(shard_, options_.server, server, options_.lease, store_, key_, log_);
}

// The replica has all that was applied. It goes on as soon as the store says so, which the store may do even if its
// answer does not come: so the shard is not this server's any more in any case.
void HeldShard::finish_move() {
  try {
    ShardPlaces(store_, options_.servers).has_moved(number(), options_.server, *destination_);
    log_.warning("shard " + std::to_string(number()) + " has moved to server " + std::to_string(*destination_) +
                 ", because this one had more to do");
  } catch (const Error& error) {
    log_.error("shard " + std::to_string(number()) + " is lost in its move: " + error.what());
  }
  has_moved_ = true;
  role_ = Role::none;
  destination_.reset();
  replication_.reset();
}

void HeldShard::give_up_move(const Error& cause) {
  log_.warning("shard " + std::to_string(number()) + " stays here: " + cause.what());
  replication_.reset();
  shard_.keep_evicted(false);
  const int destination = *std::exchange(destination_, std::nullopt);
  try {
    ShardPlaces(store_, options_.servers).want(number(), destination, options_.server);
  } catch (const PeerLost&) {  // without the store nothing moves any more
  }
}

bool HeldShard::arrives() {
  try {
    if (role_ != Role::replica || ShardPlaces(store_, options_.servers).server_of(number()) != options_.server) {
      return false;
    }
  } catch (const Error& error) {
    log_.error("shard " + std::to_string(number()) + " is lost in its move: " + error.what());
    role_ = Role::none;
    return false;
  }
  role_ = Role::primary;
  shard_.lead();
  return true;
}

// False also if the store does not answer: then nobody can know whether the other server has gone on.
bool HeldShard::claim() {
  try {
    return generation_.claim(store_, shard_.number());
  } catch (const Error& error) {
    log_.warning(std::string("cannot ask who is to go on with a shard: ") + error.what());
    return false;
  }
}

std::optional<PsAnswer> HeldShard::apply(const PsRequest& request, std::span<const std::byte> sent,
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

bool HeldShard::refuse(const PsRequest& request, const std::string& why) {
  PsRequest refusal = request;
  refusal.op = PsOp::refused;
  refusal.rows = 0;
  return apply(refusal, std::as_bytes(std::span(why)), {}).has_value();
}

PsAnswer HeldShard::restore(const PsRequest& request, const std::string& folder) {
  // The replica must not go on with less, should this server be lost meanwhile.
  if (!destination_ && is_replicating() && !claim()) throw Aborted("another server answers for this shard");
  if (replication_) replication_->begin_anew();
  restore_snapshot(shard_, folder);
  return {.sequence = request.sequence};
}

std::string HeldShard::stats() const {
  return "- copies " + std::to_string(is_replicating() ? 2 : 1) + "\n" + shard_.stats();
}

// ---- The replica

void HeldShard::receive(const PsRequest& request, std::span<const std::byte> payload) {
  if (is_primary()) throw Internal("an earlier copy goes on");
  if (request.op == PsOp::state) {
    if (part_.size() + payload.size() > kMaxPart) throw Internal("a part of a state without end");
    part_.insert(part_.end(), payload.begin(), payload.end());
    if ((request.flags & kGoesOn) == 0) shard_.read_state(std::exchange(part_, {}));
  } else if (request.op == PsOp::in_step) {
    if (payload.size() != sizeof generation_.number) throw Internal("a generation of another size");
    std::memcpy(&generation_.number, payload.data(), payload.size());
    role_ = Role::replica;
  } else {
    shard_.apply(request, payload, {});
  }
}

void HeldShard::lose_primary() {
  if (role_ == Role::filling) role_ = Role::none;
}

bool HeldShard::take_over() {
  if (!claim()) {
    role_ = Role::none;
    return false;
  }
  log_.warning("goes on with shard " + std::to_string(number()) + ", whose server is lost");
  role_ = Role::primary;
  shard_.lead();
  replicate();
  return true;
}

}  // namespace hvd
