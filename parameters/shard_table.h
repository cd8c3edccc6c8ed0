// One table's rows on a shard: what pulls read, what pushes change, and which rows are evicted. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/net/frame.h"
#include "parameters/message.h"
#include "parameters/pending_pushes.h"
#include "parameters/row_table.h"
#include "parameters/shard_workers.h"
#include "parameters/table_spec.h"
#include "parameters/update_functions.h"
#include "parameters/worker_pulls.h"

namespace hvd {

class ShardTable;

// The tables of a shard, and what they have in common.
struct ShardTables {
  const std::uint32_t shard;        // its number
  const std::uint32_t shards;       // how many there are
  const std::uint64_t job;          // the workers of another job's state are not this one's
  const std::uint32_t parts;        // the limits of rows in tables are for so many shards together
  const std::size_t memory;         // the limit for rows and their indexes, in bytes; 0: none
  bool follows = false;             // another copy decides whether there is room, and which rows are evicted
  bool keeps_evicted = false;       // in `evicted`
  bool is_restored = false;         // from a state with other workers than those who ask
  std::uint32_t applied_clock = 0;  // the clocks below have taken effect
  std::vector<EvictedRows> evicted{};
  std::vector<std::unique_ptr<ShardTable>> all{};  // by number

  std::size_t bytes() const;
  bool has_room(std::size_t more_bytes) const;
  // Null if there is none.
  ShardTable* find(const std::string& name) const;
  // Finds or adds one, and returns its number. Throws Mismatch for another one of the same name, InvalidArgument if
  // there are too many.
  std::size_t open(TableSpec spec);
  void forget_pulls(std::uint32_t worker);
  // Where evicted rows are kept; null: nowhere.
  std::vector<EvictedRows>* kept() { return keeps_evicted ? &evicted : nullptr; }

  // Scratch of one request, kept for the next one.
  struct Scratch {
    std::vector<std::uint64_t> keys{};
    std::vector<float> sums{}, rows{}, states{};
    Bytes compensated{};
  };
  Scratch scratch{};
};

class ShardTable {
 public:
  // `tables` outlives this.
  ShardTable(ShardTables& tables, std::uint16_t number, TableSpec spec);

  const TableSpec& spec() const { return spec_; }
  const RowTable& rows() const { return rows_; }
  WorkerPulls& pulls() { return pulls_; }
  PendingPushes& pending() { return pending_; }
  // Of rows, copies of rows, and pending pushes.
  std::size_t bytes() const { return rows_.bytes() + pending_.bytes() + pulls_.bytes(); }

  struct Counts {
    std::uint64_t updates = 0, pushes = 0, pulls = 0;
  };
  const Counts& counts() const { return counts_; }
  RowEviction& eviction() { return eviction_; }
  // Whether a dense table has all rows that this shard is to have.
  bool is_complete() const;

  // Requests. They throw InvalidArgument for what means nothing here, or what there is no room for: no value has
  // changed then; Internal if the payload does not belong to the header.

  // Whether the answer can be kept, where the table has delay compensation: called before anything changes.
  void check_pull(const PsRequest& request, std::span<const std::byte> payload);
  void pull(const PsRequest& request, std::span<const std::byte> payload, std::span<std::byte> answer);
  // The payload with compensated gradients, in scratch, or as it is.
  std::span<const std::byte> compensate(const PsRequest& request, std::span<const std::byte> payload);
  void push(const PsRequest& request, std::span<const std::byte> payload);
  void fill(const PsRequest& request, std::span<const std::byte> payload);
  void remove_evicted(const PsRequest& request, std::span<const std::byte> payload);
  void set_learning_rate(std::span<const std::byte> payload);

  // So many clocks more have been finished by all workers: their pushes take effect, and old rows are evicted.
  void apply_finished_clocks(std::uint32_t clocks, const ShardWorkers& workers);
  // A state has a row: values and optimizer state. Throws InvalidArgument if there is no room.
  void restore_row(std::uint64_t key, std::span<const std::byte> values);
  void restore_version(std::uint64_t version);

 private:
  void update(std::span<const std::uint64_t> keys, const float* gradients);
  void update_rows(std::span<const std::uint64_t> keys, const float* gradients);
  void call_function(std::span<const std::uint64_t> keys, const float* gradients);
  // The unit of RowTable::Row::used.
  std::uint32_t now() const;
  bool make_rows(std::span<const std::uint64_t> keys, std::size_t more_bytes = 0);
  void check_room(std::size_t new_rows, std::size_t more_bytes = 0) const;

  ShardTables& tables_;
  TableSpec spec_;
  UpdateFunction function_;  // custom updates alone
  std::string failure_;      // of a custom update at the end of a clock: nobody can use the table any longer
  RowTable rows_;
  RowEviction eviction_;
  Counts counts_;
  WorkerPulls pulls_;
  PendingPushes pending_;
};

}  // namespace hvd
