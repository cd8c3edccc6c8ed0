#include "parameters/shard_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "parameters/optimizer.h"

namespace hvd {

namespace {

constexpr std::size_t kPartBytes = std::size_t{128} << 10;
constexpr std::uint8_t kHead = 1, kRows = 2;

std::size_t floats_of(const TableSpec& spec) { return spec.width + state_size(spec.optimizer, spec.width); }

Bytes write_head(const ShardTables& tables, const ShardWorkers& workers) {
  ByteWriter to;
  to.put(kHead);
  to.put(tables.shard);
  to.put(tables.shards);
  to.put(tables.job);
  to.put(tables.applied_clock);
  workers.write(to);
  to.put(static_cast<std::uint32_t>(tables.all.size()));
  for (const auto& table : tables.all) {
    to.put(table->spec());
    to.put(table->counts().updates);
    table->pending().write(to);
  }
  return to.take();
}

Bytes write_rows(const ShardTable& table, std::size_t& position) {
  const std::size_t floats = floats_of(table.spec());
  ByteWriter to;
  to.put(kRows);
  to.put_string(table.spec().name);
  const std::size_t bytes = sizeof(std::uint64_t) + floats * sizeof(float);
  const std::size_t at_most = std::max<std::size_t>(1, kPartBytes / bytes);
  for (std::size_t count = 0; count < at_most && position < table.rows().end(); ++position) {
    const RowTable::Row* const row = table.rows().at(position);
    if (row == nullptr) continue;
    to.put(row->key);
    to.put_bytes(std::as_bytes(std::span(row->values(), floats)));
    ++count;
  }
  return to.take();
}

void read_head(ByteReader& from, ShardTables& tables, ShardWorkers& workers) {
  const auto shard = from.get<std::uint32_t>(), shards = from.get<std::uint32_t>();
  const auto job = from.get<std::uint64_t>();
  const bool is_own = shard == tables.shard && shards == tables.shards && job == tables.job && workers.empty();
  const auto applied_clock = from.get<std::uint32_t>();
  ShardWorkers read_workers(tables.shard);
  read_workers.read(from);
  for (auto count = from.get_count(40); count > 0; --count) {
    ShardTable& table = *tables.all[tables.open(read_table_spec(from))];
    table.restore_version(from.get<std::uint64_t>());
    table.pending().read(from, table.spec(), is_own);
  }
  from.expect_end();
  tables.is_restored = true;
  if (!is_own) return;
  workers = std::move(read_workers);
  tables.applied_clock = applied_clock;
}

void read_rows(ByteReader& from, const ShardTables& tables) {
  ShardTable* const table = tables.find(from.get_string());
  if (table == nullptr) throw Internal("malformed state of a shard: rows of a table that it does not have");
  const std::size_t bytes = floats_of(table->spec()) * sizeof(float);
  while (from.remaining() > 0) {
    const std::uint64_t key = read_key(table->spec(), from);
    table->restore_row(key, std::as_bytes(std::span(from.get_text(bytes))));
  }
}

}  // namespace

Bytes write_state(const ShardTables& tables, const ShardWorkers& workers, StatePosition& position) {
  if (!std::exchange(position.begun, true)) return write_head(tables, workers);
  for (; position.table < tables.all.size(); ++position.table, position.row = 0) {
    const ShardTable& table = *tables.all[position.table];
    if (position.row < table.rows().end()) return write_rows(table, position.row);
  }
  return {};
}

bool is_own_state(const ShardTables& tables, std::span<const std::byte> part) {
  ByteReader from(part);
  return from.get<std::uint8_t>() == kHead && from.get<std::uint32_t>() == tables.shard &&
         from.get<std::uint32_t>() == tables.shards && from.get<std::uint64_t>() == tables.job;
}

void read_state(std::span<const std::byte> part, ShardTables& tables, ShardWorkers& workers) {
  ByteReader from(part);
  const auto kind = from.get<std::uint8_t>();
  if (kind == kHead) return read_head(from, tables, workers);
  if (kind == kRows) return read_rows(from, tables);
  throw Internal("malformed state of a shard");
}

}  // namespace hvd
