// A shard that a server has: as its primary, which answers the workers and passes on what it applies, or as its
// replica, which goes on if the primary is lost. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/net/authentication.h"
#include "parameters/message.h"
#include "parameters/replication.h"
#include "parameters/server.h"
#include "parameters/shard.h"

namespace hvd {

enum class Role {
  primary,  // answers the workers
  filling,  // receives the state
  replica,  // has the state, and goes on if the primary is lost
  none,     // has had it: the other server goes on without this one
};

class HeldShard {
 public:
  // The references outlive this.
  HeldShard(std::uint32_t number, Role role, const ServerOptions& options, const Store& store, const JobKey& key,
            const Log& log);

  int number() const { return static_cast<int>(shard_.number()); }
  Role role() const { return role_; }
  bool is_primary() const { return role_ == Role::primary; }
  const Shard& shard() const { return shard_; }
  // Whether this server has no more to do for it.
  bool is_over() const { return role_ == Role::none || shard_.is_over(); }

  // ---- The primary

  // In the first server of a shard with two copies: nobody is answered until there is a replica, or the time is up.
  void begin_with_replica();
  // In a server that is started again: takes the last snapshot; false if there is none.
  bool restore_own(const std::string& folder);
  bool is_open() const { return !opens_; }

  // Sends what the replica lacks. Returns whether there is a new connection, whose fd() must be watched. May find out
  // that the other server goes on with the shard: role() is `none` then.
  bool progress();
  int fd() const { return replication_ ? replication_->fd() : -1; }  // -1: none
  void notice_event();
  void check_time(TimePoint now);
  Deadline next_deadline() const;

  // As Shard::apply(), here and at the replica; `sent` is the payload as the worker sent it. Null: there is no room in
  // the connection with the replica yet, and nothing has happened.
  std::optional<PsAnswer> apply(const PsRequest& request, std::span<const std::byte> sent, std::span<std::byte> answer);
  // A numbered request that was refused: so it is from now on, here and at the replica. False: not yet, as above.
  bool refuse(const PsRequest& request, const std::string& why);
  PsAnswer restore(const PsRequest& request, const std::string& folder);
  std::string stats() const;

  // Answers wait until the replica has what they answer. `position` is after the last request that was applied.
  bool is_replicating() const { return replication_ && replication_->is_in_step(); }
  std::uint64_t position() const { return replication_->forwarded(); }
  bool is_replicated(std::uint64_t position) const {
    return !is_replicating() || position <= replication_->replicated();
  }

  // ---- Moves, where there is one copy

  // The primary fills that server's replica, and leaves the shard to it when it is in step. Nothing happens if it is
  // moving already.
  void move_to(int server);
  bool has_moved() const { return has_moved_; }
  void add_load(std::size_t bytes) { load_ += bytes; }
  // Since the last call.
  std::uint64_t take_load() { return std::exchange(load_, 0); }
  // This server ends: what is moving stays here.
  void stop_moving() {
    if (destination_) give_up_move(Aborted("this server ends"));
  }
  // The server that the shard came from is lost: whether it has left the shard to this one, which is its primary then.
  bool arrives();

  // ---- The replica

  // A request of the primary's.
  void receive(const PsRequest& request, std::span<const std::byte> payload);
  // A replica that is not whole is none.
  void lose_primary();
  // The primary is lost: becomes it. False if another server goes on, or nobody can know.
  bool take_over();

 private:
  void replicate();
  void finish_move();
  void give_up_move(const Error& cause);
  void go_on_alone(const Error& cause);
  void step_down();
  bool claim();

  const ServerOptions& options_;
  const Store& store_;
  const JobKey& key_;
  const Log& log_;
  Shard shard_;
  Role role_;
  ShardGeneration generation_{};
  std::unique_ptr<Replication> replication_{};  // primary: null if there is to be no replica
  std::optional<Deadline> opens_{};
  std::optional<int> destination_{};  // of the move in progress
  bool has_moved_ = false;
  std::uint64_t load_ = 0;
  Bytes part_{};  // replica: of the state, until it is whole
};

}  // namespace hvd
