// A shard's state as a sequence of parts of at most about 128 KiB, for snapshots and new replicas: a head with tables,
// workers and pending pushes, then rows. Rows may change between parts: a replica that gets the requests applied in
// between, each after the part that preceded it, ends with the same state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/net/frame.h"
#include "parameters/shard_table.h"
#include "parameters/shard_workers.h"

namespace hvd {

// How far a state was written.
struct StatePosition {
  bool begun = false;
  std::size_t table = 0;
  std::size_t row = 0;
};

// Empty at the end.
Bytes write_state(const ShardTables& tables, const ShardWorkers& workers, StatePosition& position);

// Whether this is the first part of a state of this very shard in this job.
bool is_own_state(const ShardTables& tables, std::span<const std::byte> part);

// Adds a part's rows, as far as they belong to this shard; what concerns workers only if it was written by a shard of
// this number and count, and no worker has come yet: sequence numbers of another job's workers mean nothing here.
// Throws Internal for malformed bytes, Mismatch for another table of the same name, InvalidArgument if memory ends.
void read_state(std::span<const std::byte> part, ShardTables& tables, ShardWorkers& workers);

}  // namespace hvd
