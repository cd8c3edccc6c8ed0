// Replication keeps a shard's replica on another server: it sends the state, and passes on every request that the
// primary has applied, in their order. Once the replica is in step, an answer waits until the replica has what it
// answers. ReplicatedShard is the shard together with that, at the primary and at the replica.
//
// Each server may believe that the other is lost. Before it answers alone it claims the next generation in the job's
// store (ShardGeneration); the first claim wins, and the loser's rows are void.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/net/authentication.h"
#include "core/net/connection_attempt.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/server.h"
#include "parameters/shard.h"

namespace hvd {

// A shard's generation: a fencing number, incremented whenever its primary changes.
struct ShardGeneration {
  std::uint64_t number = 0;

  // Ends this generation in favour of the caller; false if the other server did before. False also if the store does
  // not answer: then nobody can know whether the other server has gone on.
  bool claim(const Store& store, std::uint32_t shard, const Log& log);
};

class Replication {
 public:
  // `peer` is the server that is to have the replica. The references outlive this.
  Replication(const Shard& shard, int server, int peer, Duration lease, const Store& store, const JobKey& key,
              const Log& log);

  // The other server answers for the shard itself: this one must not any longer.
  bool is_refused() const { return is_refused_; }
  // -1 while there is no connection.
  int fd() const;
  // For the event loop: something has happened on the descriptor.
  void notice_event();
  // When progress() is to be called again at the latest.
  Deadline next_deadline() const;

  // Connects, sends, and takes answers. Returns whether the connection is new, so that it must be watched. Throws
  // PeerLost if a replica that was in step is lost, or is_refused(): until then answers wait, and afterwards it begins
  // anew.
  bool progress(const ShardGeneration& generation);

  // A request is passed on in two steps: prepare() before it is applied, and forward() afterwards, or cancel() if it
  // was refused. prepare() returns false if there is no room yet.
  bool prepare(const PsRequest& request, std::span<const std::byte> payload);
  void forward();
  void cancel();
  // Rows that the shard has evicted for the request in progress. They are sent after it, and before the next one.
  void forward(const std::vector<EvictedRows>& evicted);

  // Answers to requests that were forwarded before wait until replicated() has reached forwarded(), if the replica is
  // in step.
  bool is_in_step() const { return in_step_; }
  std::uint64_t forwarded() const { return sent_ + evicted_.size(); }
  std::uint64_t replicated() const { return answered_; }

  // Sends the whole state again, which has changed otherwise than by whole requests.
  void begin_anew();

 private:
  struct StateTransfer {
    StatePosition position{};
    Bytes part{};  // the last one that was read
    std::size_t part_sent = 0;
  };

  void look_for_peer();
  bool is_state_to_begin() const { return state_ && !state_->position.begun; }
  void send_state(const ShardGeneration& generation);
  bool send_evicted();
  bool write(const PsRequest& request, std::span<const std::byte> payload);
  bool send(const PsRequest& request, std::span<const std::byte> payload);
  void take_answers();

  const Shard& shard_;
  const int server_, peer_;
  const Duration lease_;
  const Store& store_;
  const JobKey& key_;
  const Log& log_;
  TimePoint next_search_{};
  std::unique_ptr<ConnectionAttempt> attempt_;
  std::unique_ptr<Pipe> pipe_;
  std::optional<StateTransfer> state_{};  // that is being sent
  std::deque<EvictedRows> evicted_{};     // still to be sent, each in a request
  std::size_t prepared_ = 0;              // bytes of a frame; 0: none
  std::deque<std::uint64_t> state_sent_;  // of the parts that have no answer, sent_ before them
  TimePoint attempt_ends_{};
  std::optional<std::string> broken_{};
  bool is_refused_ = false;
  bool in_step_ = false;
  std::uint64_t sent_ = 0, answered_ = 0;  // requests
};

// A shard, and its replica on another server if it has one: what changes the shard is passed on. At a replica, takes
// what the primary sends.
class ReplicatedShard {
 public:
  ReplicatedShard(std::uint32_t number, const ServerOptions& options, const JobKey& key);

  const Shard& shard() const { return shard_; }
  Shard& shard() { return shard_; }

  // Null: there is no replica, nor is there to be one.
  void set_replication(std::unique_ptr<Replication> replication) { replication_ = std::move(replication); }
  Replication* replication() { return replication_.get(); }
  Deadline next_deadline() const { return replication_ ? replication_->next_deadline() : Deadline::max(); }

  // As Shard::apply(), here and at the replica; `sent` is the payload as the worker sent it. Null: there is no room in
  // the connection with the replica yet, and nothing has happened.
  std::optional<PsAnswer> apply(const PsRequest& request, std::span<const std::byte> sent, std::span<std::byte> answer);
  // A numbered request that was refused: so it is from now on, here and at the replica. False: not yet, as above.
  bool refuse(const PsRequest& request, const std::string& why);
  std::string stats() const { return "- copies " + std::to_string(is_replicating() ? 2 : 1) + "\n" + shard_.stats(); }

  // Answers wait until the replica has what they answer. `position` is after the last request that was applied.
  bool is_replicating() const { return replication_ && replication_->is_in_step(); }
  std::uint64_t position() const { return replication_->forwarded(); }
  bool is_replicated(std::uint64_t position) const {
    return !is_replicating() || position <= replication_->replicated();
  }

  // At a replica: a part of the primary's state, or a request that it has applied.
  void receive(const PsRequest& request, std::span<const std::byte> payload);

  // Bytes of requests and answers, by which servers are compared.
  void add_load(std::size_t bytes) { load_ += bytes; }
  // Since the last call.
  std::uint64_t take_load() { return std::exchange(load_, 0); }

 private:
  Shard shard_;
  std::unique_ptr<Replication> replication_{};
  Bytes part_{};  // replica: of the state, until it is whole
  std::uint64_t load_ = 0;
};

}  // namespace hvd
