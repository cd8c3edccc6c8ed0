#include "parameters/held_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "parameters/shard_directory.h"
#include "parameters/snapshot.h"

namespace hvd {

namespace {

// That has a shard with two copies, too.
int other_server(int shard, const ServerOptions& options) {
  return shard == options.server ? (shard + 1) % options.servers : shard;
}

}  // namespace

HeldShard::HeldShard(std::uint32_t number, Role role, const ServerOptions& options, const Store& store,
                     const JobKey& key, const Log& log)
    : options_(options), store_(store), key_(key), log_(log), replicated_(number, options, key), role_(role) {
  if (role != Role::primary) replicated_.shard().follow();
  if (options.copies > 1) replicated_.shard().keep_evicted(true);
}

// ---- The primary

void HeldShard::begin_with_replica() {
  opens_ = deadline_after(options_.start_timeout);
  replicate_to(other_server(number(), options_));
}

void HeldShard::replicate_to(int server) {
  replicated_.set_replication(
      std::make_unique<Replication>(replicated_.shard(), options_.server, server, options_.lease, store_, key_, log_));
}

std::optional<int> HeldShard::progress() {
  Replication* const replication = replicated_.replication();
  if (!is_primary() || replication == nullptr) return std::nullopt;
  try {
    const bool is_new = replication->progress(generation_);
    if (replication->is_in_step()) opens_.reset();
    if (destination_ && replicated_.is_replicating() && replicated_.is_replicated(replicated_.position())) {
      finish_move();
      return std::nullopt;
    }
    return is_new ? std::optional(replication->fd()) : std::nullopt;
  } catch (const PeerLost& error) {
    if (destination_) {
      give_up_move(error);
    } else if (replication->is_refused()) {
      step_down();
    } else {
      go_on_alone(error);
    }
    return std::nullopt;
  }
}

void HeldShard::check_time(TimePoint now) {
  if (!opens_ || now < *opens_) return;
  opens_.reset();
  go_on_alone(Timeout("no other server has come to keep it"));
}

Deadline HeldShard::next_deadline() const {
  const Deadline of_replica = replicated_.next_deadline();
  return opens_ ? std::min(*opens_, of_replica) : of_replica;
}

// The server that has the replica is lost; unless it takes this one for lost, and was faster.
void HeldShard::go_on_alone(const Error& cause) {
  if (!generation_.claim(store_, shard().number(), log_)) return step_down();
  if (shard().is_over()) return;
  log_.warning("shard " + std::to_string(number()) + " has lost its replica: " + cause.what());
}

void HeldShard::step_down() {
  log_.warning("another server has taken over shard " + std::to_string(number()) + "; this one stops answering for it");
  role_ = Role::none;
  replicated_.set_replication(nullptr);
}

void HeldShard::move_to(int server) {
  if (!is_primary() || replicated_.replication() != nullptr) return;
  destination_ = server;
  replicated_.shard().keep_evicted(true);
  replicate_to(server);
}

// The replica has all that was applied. It goes on as soon as the store says so, which the store may do even if its
// answer does not come: so the shard is not this server's any more in any case.
void HeldShard::finish_move() {
  try {
    ShardDirectory(store_, options_.servers).has_moved(number(), options_.server, *destination_);
    log_.warning("shard " + std::to_string(number()) + " has moved to server " + std::to_string(*destination_) +
                 ", because this one had more to do");
  } catch (const Error& error) {
    log_.error("shard " + std::to_string(number()) + " is lost in its move: " + error.what());
  }
  role_ = Role::moved;
  destination_.reset();
  replicated_.set_replication(nullptr);
}

void HeldShard::give_up_move(const Error& cause) {
  log_.warning("shard " + std::to_string(number()) + " stays here: " + cause.what());
  replicated_.set_replication(nullptr);
  replicated_.shard().keep_evicted(false);
  const int destination = *std::exchange(destination_, std::nullopt);
  try {
    ShardDirectory(store_, options_.servers).want(number(), destination, options_.server);
  } catch (const Error&) {  // without the store nothing moves any more
  }
}

bool HeldShard::arrives() {
  try {
    if (role_ != Role::replica || ShardDirectory(store_, options_.servers).server_of(number()) != options_.server) {
      return false;
    }
  } catch (const Error& error) {
    log_.error("shard " + std::to_string(number()) + " is lost in its move: " + error.what());
    role_ = Role::none;
    return false;
  }
  role_ = Role::primary;
  replicated_.shard().lead();
  return true;
}

void HeldShard::renew_replica() {
  const bool was_replicating = replicated_.is_replicating();
  if (Replication* const replication = replicated_.replication()) replication->begin_anew();
  // The replica must not go on with less, should this server be lost meanwhile.
  if (!destination_ && was_replicating && !generation_.claim(store_, shard().number(), log_)) {
    throw Aborted("another server answers for this shard");
  }
}

PsAnswer HeldShard::restore(const PsRequest& request, const std::string& folder) {
  renew_replica();
  restore_snapshot(replicated_.shard(), folder);
  return {.sequence = request.sequence};
}

// ---- The replica

void HeldShard::receive(const PsRequest& request, std::span<const std::byte> payload) {
  if (is_primary()) throw Internal("a superseded replication connection is still sending");
  if (request.op != PsOp::in_step) return replicated_.receive(request, payload);
  if (payload.size() != sizeof generation_.number) throw Internal("a generation of another size");
  std::memcpy(&generation_.number, payload.data(), payload.size());
  role_ = Role::replica;
}

void HeldShard::lose_primary() {
  if (role_ == Role::filling) role_ = Role::none;
}

bool HeldShard::take_over() {
  if (!generation_.claim(store_, shard().number(), log_)) {
    role_ = Role::none;
    return false;
  }
  log_.warning("goes on with shard " + std::to_string(number()) + ", whose server is lost");
  role_ = Role::primary;
  replicated_.shard().lead();
  replicate_to(other_server(number(), options_));
  return true;
}

// ---- All shards of a server

HeldShard& HeldShards::hold(std::uint32_t number, Role role) {
  return all_.try_emplace(static_cast<int>(number), number, role, options_, store_, key_, log_).first->second;
}

// A server that is started again has nothing: it gets what it had from the server that has gone on, or, where there is
// one copy, from its last snapshot.
void HeldShards::hold_own(bool is_first_start) {
  if (options_.copies > 1) {
    if (is_first_start) hold(static_cast<std::uint32_t>(options_.server), Role::primary).begin_with_replica();
    return;
  }
  const ShardDirectory directory(store_, options_.servers);
  for (int shard = 0; shard < options_.shards(); ++shard) {
    if (directory.server_of(shard) != options_.server) continue;
    Shard& own = hold(static_cast<std::uint32_t>(shard), Role::primary).replicated().shard();
    if (!is_first_start && restore_own_snapshot(own, options_.snapshot)) restored_.insert(shard);
  }
  if (restored_.empty()) return;
  log_.warning("was started again, from the last snapshot in " + options_.snapshot + ": updates since then are lost");
}

void HeldShards::begin_replica(std::uint32_t number) {
  if (options_.servers < 2 || static_cast<int>(number) >= options_.shards()) {
    throw InvalidArgument("no such shard is to be copied here");
  }
  const HeldShard* const held = find(static_cast<int>(number));
  if (held != nullptr && held->is_primary()) throw Aborted("this server answers for that shard");
  all_.erase(static_cast<int>(number));
  hold(number, Role::filling);
}

void HeldShards::lose_primary(int number) {
  HeldShard* const held = find(number);
  if (held == nullptr) return;
  if (options_.copies > 1) return held->lose_primary();
  // The workers were there a moment ago, and may be busy with a long step.
  if (held->arrives()) return expect_workers(*held, deadline_after(options_.start_timeout));
  all_.erase(number);
}

bool HeldShards::take_over(HeldShard& held) {
  if (!held.take_over()) return false;
  expect_workers(held, Clock::now());
  return true;
}

void HeldShards::notice_event(int fd) {
  for (auto& [number, held] : all_) {
    Replication* const replication = held.replicated().replication();
    if (replication != nullptr && replication->fd() == fd) replication->notice_event();
  }
}

Deadline HeldShards::next_deadline() const {
  Deadline next = Deadline::max();
  for (const Lost& lost : lost_) next = std::min(next, lost.since + options_.lease);
  for (const auto& [number, held] : all_) next = std::min(next, held.next_deadline());
  return next;
}

// Those that do not come count as lost since then.
void HeldShards::expect_workers(const HeldShard& held, TimePoint since) {
  for (const std::uint32_t worker : held.shard().workers().present()) {
    lose_worker(held.number(), static_cast<int>(worker), since);
  }
}

// A snapshot also has workers that have gone since. They count as lost once another one has come: before that all may
// be busy with a long step.
void HeldShards::greet_worker(int shard, int worker) {
  if (restored_.erase(shard) > 0) expect_workers(*find(shard), deadline_after(options_.start_timeout));
  std::erase_if(lost_, [&](const Lost& lost) { return lost.worker == worker && lost.shard == shard; });
}

void HeldShards::forget_lost_workers(TimePoint now) {
  std::erase_if(lost_, [&](const Lost& lost) {
    HeldShard* const held = find(lost.shard);
    if (held == nullptr || !held->is_primary()) return true;
    if (now < lost.since + options_.lease) return false;
    const PsRequest forget{.op = PsOp::forget, .worker = static_cast<std::uint32_t>(lost.worker)};
    if (!held->replicated().apply(forget, {}, {})) return false;
    log_.warning("worker " + std::to_string(lost.worker) + " is lost: nobody waits for it any longer");
    return true;
  });
}

}  // namespace hvd
