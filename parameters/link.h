// A worker's link with one shard: the requests that have no answer yet, in order, and the connection with the server
// that answers for it. A connection that breaks is made again by and by, while other links go on; what was not answered
// is sent again, and applied once.
//
// Nothing waits, except where it says so. Used under the client's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/net/byte_codec.h"
#include "parameters/client.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/row_cache.h"
#include "parameters/server_attempt.h"
#include "parameters/table_spec.h"

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
  std::vector<std::string> texts;       // stats: the answers, by shard
  std::function<void()> at_end;         // called when all have answered
};

// What is sent to one shard: rows of a call, or a payload of another kind.
struct ShardMessage {
  PsRequest request;
  int table = -1;
  ParameterClient::CallReference call;  // null: nobody waits for it
  RowsCall rows{};
  std::vector<std::uint32_t> places{};  // of its rows within the call; empty: `request.rows` from `first` on
  std::uint32_t first = 0;
  Bytes payload{};
  RowCache* cache = nullptr;  // of the table, if it has one

  std::uint64_t key(std::size_t i) const { return rows.keys[places.empty() ? first + i : places[i]]; }
  bool has_rows() const { return request.op == PsOp::pull || has_gradients(); }
  bool has_gradients() const {
    return request.op == PsOp::push || request.op == PsOp::push_pull || request.op == PsOp::fill;
  }
};

class Link {
 public:
  // `tables`: this worker's, in the order in which they were opened; `failure`: the first one of what nobody waits for.
  // The references outlive this.
  Link(const WorkerIdentity& worker, int shard, const std::deque<TableSpec>& tables, Status& failure);

  // Returns true once there is a connection. Throws PeerLost if there has been none for start_timeout (time in which
  // nobody called does not count), Aborted if the server has lost its rows, and what the server refuses with.
  bool connect();
  // This worker's clock, as the server knew it when they first met.
  std::uint32_t first_clock() const { return first_clock_; }

  // To be sent by progress(), in order. `clock`: this worker's.
  void submit(ShardMessage&& message, std::uint32_t clock);
  // Sends what fits and takes the answers that have arrived. Throws as connect().
  void progress();
  bool is_idle() const { return messages_.empty(); }
  bool is_connected() const { return pipe_ != nullptr; }
  // Sleeps until there may be progress. False: it cannot know when.
  bool wait(Deadline deadline);
  void look_for_silence(TimePoint now);
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
  std::size_t payload_bytes(const ShardMessage& message) const;
  void write_payload(const ShardMessage& message, std::byte* to) const;
  void write_rows(const ShardMessage& message, std::byte* to) const;
  void take_answers();
  void take(const PsAnswer& answer, std::span<const std::byte> payload);
  void copy_rows(const ShardMessage& message, std::span<const std::byte> payload) const;
  void cache_rows(const ShardMessage& message, std::span<const std::byte> payload) const;
  void finish(const ShardMessage& message, Status status, std::uint64_t version);
  std::size_t width_of(const ShardMessage& message) const {
    return tables_[static_cast<std::size_t>(message.table)].width;
  }

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
  bool has_met_ = false;
  std::uint32_t first_clock_ = 0;

  std::vector<std::uint16_t> table_numbers_;  // at the server, of the tables that are open there
  std::deque<ShardMessage> messages_;         // that have no answer, in order
  std::size_t sent_ = 0;                      // of them, the first ones
  std::uint64_t last_sequence_ = 0;
  bool has_changed_ = false;  // a request that changes rows was applied
  std::uint32_t min_clock_ = 0;
};

}  // namespace hvd
