// One shard of the parameter servers' tables: rows, the workers' clocks, and the last request of each worker that was
// applied. Pure: requests in, answers out; no sockets, no time. One thread.
//
// A second shard (a replica) that applies the same requests in the same order, and removes the rows that the first one
// has evicted, has the same bits. Evictions depend on pulls, too, which a replica does not see. A push that was applied
// before is answered, and not applied again; one that was refused, and whose refusal was applied (PsOp::refused), is
// refused again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/metrics.h"
#include "core/net/frame.h"
#include "parameters/message.h"
#include "parameters/shard_state.h"
#include "parameters/shard_table.h"
#include "parameters/shard_workers.h"

namespace hvd {

class Shard {
 public:
  // `memory`: the limit for rows and their indexes, in bytes; 0: none. `job`: the workers of another job's state are
  // not this one's. `parts`: the limits of rows in tables are for so many shards together.
  Shard(std::uint32_t number, std::uint32_t shards, std::size_t memory, std::uint64_t job = 0, std::uint32_t parts = 1)
      : tables_{.shard = number, .shards = shards, .job = job, .parts = parts, .memory = memory}, workers_(number) {}

  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Until lead(), another copy decides whether there is room, and which rows are evicted (PsOp::evicted).
  void follow() { tables_.follows = true; }
  void lead();

  // From now on what it evicts is kept for take_evicted(), because another server has, or gets, a copy; or no longer.
  void keep_evicted(bool on) {
    tables_.evicted.clear();
    tables_.keeps_evicted = on;
  }
  // The rows that were evicted since the last call.
  std::vector<EvictedRows> take_evicted() { return std::exchange(tables_.evicted, {}); }

  std::uint32_t number() const { return tables_.shard; }
  std::uint32_t shards() const { return tables_.shards; }
  bool is_over() const { return workers_.are_over(); }

  // Whether the request's table has been filled, if it is to be. Throws InvalidArgument.
  bool has_values(const PsRequest& request) const;
  // Whether a request can be answered now, or has to wait until other workers have gone on. Throws InvalidArgument.
  bool is_ready(const PsRequest& request) const;

  // Of the answer's payload. Throws InvalidArgument for a table that is not open.
  std::size_t answer_bytes(const PsRequest& request) const;

  // Requires is_ready(), and `answer` of answer_bytes(). Throws InvalidArgument for a request that means nothing here,
  // Aborted for a worker whose place another process has taken: nothing has changed then. Throws Internal if the
  // payload does not belong to the header.
  PsAnswer apply(const PsRequest& request, std::span<const std::byte> payload, std::span<std::byte> answer);

  // Returns a request's payload as it is to be applied, here and by replicas: with compensated gradients if the table
  // has delay compensation, which depends on what the worker has pulled here. Valid until the next call.
  std::span<const std::byte> compensate(const PsRequest& request, std::span<const std::byte> payload);

  // The worker's connection has broken, and it has not come back: nobody waits for it any longer, and it is refused.
  void forget(std::uint32_t worker);

  const ShardWorkers& workers() const { return workers_; }

  // Lines "<table> <metric> <value>".
  std::string stats() const;
  // Of all tables; of staleness that of the stalest table.
  void count_into(ShardMetrics& metrics) const;

  // See shard_state.h.
  bool is_own_state(std::span<const std::byte> part) const { return hvd::is_own_state(tables_, part); }
  Bytes write_state(StatePosition& position) const { return hvd::write_state(tables_, workers_, position); }
  void read_state(std::span<const std::byte> part) { hvd::read_state(part, tables_, workers_); }

 private:
  ShardTable& table_of(const PsRequest& request) const;
  PsAnswer hello(const PsRequest& request, std::span<const std::byte> payload);
  PsAnswer open_table(const PsRequest& request, std::span<const std::byte> payload);
  PsAnswer apply_to_worker(const PsRequest& request, std::span<const std::byte> payload, std::span<std::byte> answer);
  // The pushes of clocks that every worker has finished take effect.
  void apply_finished_clocks();

  ShardTables tables_;
  ShardWorkers workers_;
};

}  // namespace hvd
