// A shard that a server has: as its primary, which answers the workers and passes on what it applies, or as its
// replica, which goes on if the primary is lost. HeldShard decides which of the two it is, ReplicatedShard has the
// rows, and HeldShards are all shards of a server. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
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
  moved,    // has passed it on to another server, where there is one copy: to be erased
};

class HeldShard {
 public:
  // The references outlive this.
  HeldShard(std::uint32_t number, Role role, const ServerOptions& options, const Store& store, const JobKey& key,
            const Log& log);

  int number() const { return static_cast<int>(shard().number()); }
  Role role() const { return role_; }
  bool is_primary() const { return role_ == Role::primary; }
  const Shard& shard() const { return replicated_.shard(); }
  ReplicatedShard& replicated() { return replicated_; }
  // Whether this server has no more to do for it.
  bool is_over() const { return role_ == Role::none || shard().is_over(); }

  // ---- The primary

  // In the first server of a shard with two copies: nobody is answered until there is a replica, or the time is up.
  void begin_with_replica();
  bool is_open() const { return !opens_; }

  // Sends what the replica lacks. Returns the descriptor of a new connection, which must be watched; empty: there is
  // none. May learn that another server has taken over, or complete a move: then this one is not the primary any more.
  std::optional<int> progress();
  void check_time(TimePoint now);
  Deadline next_deadline() const;

  PsAnswer restore(const PsRequest& request, const std::string& folder);
  // The shard has changed otherwise than by whole requests: the replica, if there is one, gets all of the state again.
  // Throws Aborted if another server has taken over the shard.
  void renew_replica();

  // ---- Moves, where there is one copy

  // The primary fills that server's replica, and leaves the shard to it when it is in step. Nothing happens if it is
  // moving already.
  void move_to(int server);
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
  void replicate_to(int server);
  void finish_move();
  void give_up_move(const Error& cause);
  void go_on_alone(const Error& cause);
  void step_down();

  const ServerOptions& options_;
  const Store& store_;
  const JobKey& key_;
  const Log& log_;
  ReplicatedShard replicated_;
  Role role_;
  ShardGeneration generation_{};
  std::optional<Deadline> opens_{};
  std::optional<int> destination_{};  // of the move in progress
};

// The shards that a server has, by number, and the workers whose connections have broken, which are forgotten if they
// do not come back within the lease. One thread.
class HeldShards {
 public:
  // The references outlive this.
  HeldShards(const ServerOptions& options, const Store& store, const JobKey& key, const Log& log)
      : options_(options), store_(store), key_(key), log_(log) {}

  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  HeldShard* find(int number) {  // null: none
    const auto found = all_.find(number);
    return found == all_.end() ? nullptr : &found->second;
  }

  // Creates the shards with which the server begins; one that is started again restores them from its last snapshot.
  // Throws PeerLost.
  void hold_own(bool is_first_start);
  // Replaces what there is of a shard by one to be filled. Throws InvalidArgument, Aborted.
  void begin_replica(std::uint32_t number);
  // The connection of the primary of a shard whose replica is here has broken.
  void lose_primary(int number);
  // As HeldShard::take_over(); the workers are expected here then.
  bool take_over(HeldShard& held);
  void erase_moved() {
    std::erase_if(all_, [](const auto& entry) { return entry.second.role() == Role::moved; });
  }

  // For the event loop: something has happened on the descriptor, which may be of a connection with a replica.
  void notice_event(int fd);
  // When forget_lost_workers(), or progress() or check_time() of a shard, is due.
  Deadline next_deadline() const;

  void lose_worker(int shard, int worker, TimePoint since) { lost_.push_back({shard, worker, since}); }
  // The worker is connected: it does not count as lost any more.
  void greet_worker(int shard, int worker);
  bool has_lost_workers() const { return !lost_.empty(); }
  void forget_lost_workers(TimePoint now);

 private:
  struct Lost {
    int shard;
    int worker;
    TimePoint since;
  };

  HeldShard& hold(std::uint32_t number, Role role);
  void expect_workers(const HeldShard& held, TimePoint since);

  const ServerOptions& options_;
  const Store& store_;
  const JobKey& key_;
  const Log& log_;
  std::map<int, HeldShard> all_;
  std::vector<Lost> lost_;
  std::set<int> restored_;  // shards with a snapshot's workers, of which none has come yet
};

}  // namespace hvd
