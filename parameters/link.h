// A worker's link with one shard: the requests that have no answer yet, in order, and the connection with the server
// that answers for it. A broken connection is re-established without blocking, while other links continue; unanswered
// requests are sent again, and applied once.
//
// connect() may wait for the job's store; nothing else waits. Used under the client's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "parameters/client.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/server_attempt.h"
#include "parameters/shard_message.h"
#include "parameters/table_spec.h"

namespace hvd {

class Link {
 public:
  // `tables`: this worker's, in the order in which they were opened; `failure`: the first one of what nobody waits for.
  // The references outlive this.
  Link(const WorkerIdentity& worker, int shard, const std::deque<TableSpec>& tables, Status& failure);

  // Returns true once there is a connection. Throws PeerLost if there has been none for start_timeout (time in which
  // nobody called does not count), Aborted if the server has lost its rows, and what the server refuses with.
  bool connect();
  // This worker's clock, as the server has confirmed it.
  std::uint32_t confirmed_clock() const { return confirmed_clock_; }

  // To be sent by progress(), in order. `clock`: this worker's.
  void submit(ShardMessage&& message, std::uint32_t clock);
  // Sends what fits and takes the answers that have arrived. Throws as connect().
  void progress();
  bool is_idle() const { return messages_.empty(); }
  bool is_connected() const { return pipe_ != nullptr; }
  // Sleeps until there may be progress. False: it cannot know when.
  bool wait(Deadline deadline);
  void check_lease(TimePoint now);
  // The tables from number `count` on are not open any longer.
  void forget_tables(std::size_t count);
  void close(const Status& reason);

  std::uint32_t min_clock() const { return min_clock_; }
  // The server that is tried, or connected.
  int server() const { return server_; }

 private:
  std::string name() const;
  int find_server() const;
  void begin_connecting();
  void adopt(ServerAttempt& attempt);
  void put_off(const Error& cause);
  bool send(const ShardMessage& message);
  void take_answers();
  void take(const PsAnswer& answer, std::span<const std::byte> payload);
  void complete_part(const ShardMessage& message, Status status, std::uint64_t version);

  const WorkerIdentity& worker_;
  const int shard_;
  int server_;
  const std::deque<TableSpec>& tables_;
  Status& failure_;

  std::unique_ptr<Pipe> pipe_;  // null: it is being connected
  std::unique_ptr<ServerAttempt> attempt_;
  bool tries_replica_ = false;
  Duration spent_{};  // on connecting
  TimePoint last_try_{}, next_try_{};
  std::uint32_t confirmed_clock_ = 0;

  std::vector<std::uint16_t> table_numbers_;  // at the server, of the tables that are open there
  std::set<std::size_t> filled_;              // of those that are to be filled: they were, because a call was answered
  std::deque<ShardMessage> messages_;         // that have no answer, in order
  std::size_t sent_ = 0;                      // of them, the first ones
  std::uint64_t last_sequence_ = 0;
  bool has_changed_ = false;  // rows have changed: by a request of this worker's, or by others, as an answer has said
  std::uint32_t min_clock_ = 0;
};

}  // namespace hvd
