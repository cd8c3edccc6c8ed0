// One shard of the parameter servers' tables: rows, the workers' clocks, and the last request of each worker that was
// applied. Pure: requests in, answers out; no sockets, no time. One thread.
//
// A second shard (a replica) that applies the same requests in the same order, and removes the rows that the first one
// has evicted, has the same bits. Evictions depend on pulls, too, which a replica does not see. A push that was applied
// before is answered, and not applied again; one that was refused, and whose refusal was applied (PsOp::refused), is
// refused again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/metrics.h"
#include "core/net/frame.h"
#include "parameters/message.h"
#include "parameters/row_table.h"
#include "parameters/shard_workers.h"
#include "parameters/table_spec.h"
#include "parameters/update_functions.h"

namespace hvd {

// How stale pushes were: the number of updates that the table's rows on this shard have had since the worker's pull.
class Staleness {
 public:
  void add(std::uint64_t updates);
  std::uint64_t median() const;
  std::uint64_t worst() const { return worst_; }

 private:
  static constexpr std::size_t kExact = 256;  // larger ones count as this
  std::array<std::uint64_t, kExact + 1> counts_{};
  std::uint64_t total_ = 0;
  std::uint64_t worst_ = 0;
};

class Shard {
 public:
  // `memory`: the limit for rows and their indexes, in bytes; 0: none. `job`: the workers of another job's state are
  // not this one's. `parts`: the limits of rows in tables are for so many shards together.
  Shard(std::uint32_t number, std::uint32_t shards, std::size_t memory, std::uint64_t job = 0, std::uint32_t parts = 1)
      : number_(number), shards_(shards), job_(job), parts_(parts), memory_(memory), workers_(number) {}

  // Until lead(), another copy decides whether there is room, and which rows are evicted (PsOp::evicted).
  void follow() { follows_ = true; }
  void lead();

  // From now on what it evicts is kept for take_evicted(), because another server has, or gets, a copy.
  void keep_evicted() {
    static_cast<void>(take_evicted());
    keeps_evicted_ = true;
  }
  void forget_evicted() {
    static_cast<void>(take_evicted());
    keeps_evicted_ = false;
  }
  struct Evicted {
    std::uint16_t table = 0;
    std::vector<std::uint64_t> keys{};
  };
  // The rows that were evicted since the last call.
  std::vector<Evicted> take_evicted();

  std::uint32_t number() const { return number_; }
  std::uint32_t shards() const { return shards_; }
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

  // The state as a sequence of parts of at most about 128 KiB, for snapshots and new replicas. Rows may change
  // between parts: a replica that gets the requests applied in between, each after the part that preceded it, ends with
  // the same state.
  struct Position {
    bool begun = false;
    std::size_t table = 0;
    std::size_t row = 0;
  };
  // Whether this is the first part of a state of this very shard in this job.
  bool is_own_state(std::span<const std::byte> part) const;
  // Empty at the end.
  Bytes write_state(Position& position) const;
  // Adds a part's rows, as far as they belong to this shard; what concerns workers only if it was written by a shard of
  // this number and count, and no worker has come yet: sequence numbers of another job's workers mean nothing here.
  // Throws Internal for malformed bytes, Mismatch for another table of the same name, InvalidArgument if memory ends.
  void read_state(std::span<const std::byte> part);

 private:
  // A synchronous table's pushes of one clock and worker.
  struct Pending {
    std::vector<std::uint64_t> keys;
    std::vector<float> gradients;

    std::size_t bytes() const { return keys.size() * sizeof(std::uint64_t) + gradients.size() * sizeof(float); }
  };
  struct Table {
    explicit Table(TableSpec of);
    std::size_t bytes() const;
    void count_pending();

    TableSpec spec;
    UpdateFunction function;  // custom updates alone
    std::string failure;      // of a custom update at the end of a clock: nobody can use the table any longer
    RowTable rows;
    std::uint64_t version = 0;  // updates
    std::uint64_t pushes = 0, pulls = 0, evicted = 0;
    std::uint32_t touch = 0;
    std::size_t swept = 0;              // the number of the row that evict_aged() looks at next
    std::uint32_t aged_since = 0;       // the clock since which pulls are known here: no row counts as older
    std::vector<std::uint64_t> gone{};  // evicted, for take_evicted()
    Staleness staleness;
    std::vector<std::uint64_t> pulled;              // by worker: version at its last pull, or kNever
    std::map<std::uint32_t, RowTable> pulled_rows;  // by worker: rows as last pulled, for compensation
    std::map<std::uint32_t, std::map<std::uint32_t, Pending>> pending;  // by clock, by worker
    std::size_t pending_bytes = 0;
  };

  Table& table_of(const PsRequest& request) const;
  void remove_evicted(const PsRequest& request, std::span<const std::byte> keys);
  PsAnswer hello(const PsRequest& request, std::span<const std::byte> payload);
  PsAnswer open_table(const PsRequest& request, std::span<const std::byte> payload);
  std::size_t find_or_add(TableSpec spec);
  void pull(Table& table, const PsRequest& request, std::span<const std::byte> keys, std::span<std::byte> answer);
  void check_pull(const Table& table, const PsRequest& request, std::span<const std::byte> keys) const;
  void forget_pulls(std::uint32_t worker);
  void push(Table& table, const PsRequest& request, std::span<const std::byte> payload);
  bool is_complete(const Table& table) const;
  void fill(Table& table, const PsRequest& request, std::span<const std::byte> payload);
  void keep_pending(Table& table, const PsRequest& request, std::span<const std::byte> gradients);
  void drop_pending(std::uint32_t worker, std::uint32_t first_clock);
  void settle();
  void settle(Table& table, std::uint32_t clock);
  static Pending sum_of(std::map<std::uint32_t, Pending>& by_worker, std::size_t width);
  void update(Table& table, std::span<const std::uint64_t> keys, const float* gradients);
  void update_rows(Table& table, std::span<const std::uint64_t> keys, const float* gradients);
  void call_function(Table& table, std::span<const std::uint64_t> keys, const float* gradients);
  std::uint32_t time_of(const Table& table) const;
  bool make_rows(Table& table, std::span<const std::uint64_t> keys, std::size_t more_bytes = 0);
  void check_room(const Table& table, std::size_t new_rows, std::size_t more_bytes = 0) const;
  void evict(Table& table, std::uint64_t key);
  void evict_one(Table& table);
  void evict_aged(Table& table, std::uint32_t clocks);
  std::size_t bytes() const;
  Bytes write_head() const;
  void read_head(ByteReader& from);
  void read_rows(ByteReader& from);

  const std::uint32_t number_;
  const std::uint32_t shards_;
  const std::uint64_t job_;
  const std::uint32_t parts_;
  const std::size_t memory_;
  bool follows_ = false;
  bool keeps_evicted_ = false;
  bool has_evicted_ = false;
  bool is_restored_ = false;  // from a state with other workers than those who ask
  ShardWorkers workers_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::uint32_t settled_ = 0;  // the clocks below have taken effect
  // Scratch of one request, kept for the next one.
  std::vector<std::uint64_t> keys_;
  std::vector<float> sums_;
  std::vector<float> rows_, states_;
  Bytes compensated_;
};

}  // namespace hvd
