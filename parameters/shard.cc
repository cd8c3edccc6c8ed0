#include "parameters/shard.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "parameters/optimizer.h"

namespace hvd {

namespace {

constexpr std::size_t kMaxTables = 1u << 12;
constexpr std::size_t kPartBytes = std::size_t{128} << 10;
constexpr int kSampled = 8;  // rows, of which the least recently used one goes
constexpr std::uint8_t kHead = 1, kRows = 2;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

void require_payload(bool holds) {
  if (!holds) throw Internal("a request to a parameter server whose payload does not belong to its header");
}

std::span<const std::byte> keys_of(const PsRequest& request, std::span<const std::byte> payload) {
  const std::size_t bytes = std::size_t{request.rows} * sizeof(std::uint64_t);
  require_payload(bytes <= payload.size());
  return payload.first(bytes);
}

std::uint64_t key_at(std::span<const std::byte> keys, std::size_t i) {
  std::uint64_t key = 0;
  std::memcpy(&key, keys.data() + i * sizeof key, sizeof key);
  return key;
}

std::uint64_t read_key(const TableSpec& spec, ByteReader& from) {
  const auto key = from.get<std::uint64_t>();
  if (spec.dense && key >= spec.rows) throw Internal("malformed state of a shard: a row that its table does not have");
  return key;
}

}  // namespace

void Staleness::add(std::uint64_t updates) {
  ++counts_[std::min<std::uint64_t>(updates, kExact)];
  ++total_;
  worst_ = std::max(worst_, updates);
}

std::uint64_t Staleness::median() const {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    if (2 * below >= total_) return i;
  }
  return 0;
}

Shard::Table::Table(TableSpec of) : spec(std::move(of)), rows(spec.width + state_size(spec.optimizer, spec.width)) {
  if (spec.optimizer.rule == UpdateRule::custom) function = find_update(spec.optimizer.function);
}

std::size_t Shard::Table::bytes() const {
  std::size_t sum = rows.bytes() + pending_bytes;
  for (const auto& [worker, kept] : pulled_rows) sum += kept.bytes();
  return sum;
}

void Shard::Table::count_pending() {
  pending_bytes = 0;
  for (const auto& [clock, by_worker] : pending) {
    for (const auto& [worker, one] : by_worker) pending_bytes += one.bytes();
  }
}

Shard::Table& Shard::table_of(const PsRequest& request) const {
  if (request.table >= tables_.size()) {
    throw InvalidArgument("no table number " + std::to_string(request.table) + " is open on shard " +
                          std::to_string(number_) + ": its server has lost it");
  }
  return *tables_[request.table];
}

bool Shard::has_values(const PsRequest& request) const {
  if (request.op != PsOp::pull && request.op != PsOp::push && request.op != PsOp::push_pull) return true;
  const Table& table = table_of(request);
  return !table.spec.filled || is_complete(table);
}

bool Shard::is_ready(const PsRequest& request) const {
  if (!has_values(request)) return false;
  if (request.op != PsOp::pull && request.op != PsOp::push_pull) return true;
  const TableSpec& spec = table_of(request).spec;
  if (spec.consistency == Consistency::asynchronous) return true;
  const std::uint64_t bound = spec.consistency == Consistency::bounded ? spec.bound : 0;
  return std::uint64_t{workers_.min_clock(settled_)} + bound >= request.clock;
}

// Whether a dense table has all rows that this shard is to have.
bool Shard::is_complete(const Table& table) const {
  const std::uint64_t rows = table.spec.rows;
  // Of the first number and of the one behind the last: the smallest k for which k * shards / rows is as large.
  const auto first = [&](std::uint64_t shard) { return (shard * rows + shards_ - 1) / shards_; };
  return table.rows.size() == first(number_ + 1) - first(number_);
}

std::size_t Shard::answer_bytes(const PsRequest& request) const {
  switch (request.op) {
    case PsOp::pull:
    case PsOp::push_pull: {
      const std::size_t bytes = std::size_t{request.rows} * table_of(request).spec.width * sizeof(float);
      if (bytes > kMaxPsPayload) throw InvalidArgument("rows of more than 512 KiB in one request");
      return bytes;
    }
    default: return 0;
  }
}

PsAnswer Shard::apply(const PsRequest& request, std::span<const std::byte> payload, std::span<std::byte> answer) {
  if (request.op == PsOp::hello) return hello(request, payload);
  if (request.op == PsOp::open_table) return open_table(request, payload);
  PsAnswer result{.sequence = request.sequence, .bytes = static_cast<std::uint32_t>(answer.size())};
  if (request.op == PsOp::forget) {
    forget(request.worker);
    return result;
  }
  if (request.op == PsOp::refused) {
    workers_.refuse(request, payload);
    return result;
  }
  if (request.op == PsOp::evicted) {
    remove_evicted(request, payload);
    return result;
  }
  ShardWorkers::Worker& worker = workers_.of(request);
  const bool is_new = !is_numbered(request.op) || request.sequence > worker.applied;
  if (!is_new) worker.throw_if_refused(request);
  const bool has_table = request.op != PsOp::clock && request.op != PsOp::leave;
  Table* const table = has_table ? &table_of(request) : nullptr;
  const bool is_pull = request.op == PsOp::pull || request.op == PsOp::push_pull;
  if (is_pull && table->spec.compensation > 0) check_pull(*table, request, keys_of(request, payload));
  if (request.op == PsOp::push || request.op == PsOp::push_pull || request.op == PsOp::fill) {
    require_payload(payload.size() ==
                    std::size_t{request.rows} * (sizeof(std::uint64_t) + table->spec.width * sizeof(float)));
    if (request.op == PsOp::fill) {
      fill(*table, request, payload);
    } else if (is_new) {
      push(*table, request, payload);
    }
  }
  if (request.op == PsOp::pull) require_payload(payload.size() == std::size_t{request.rows} * sizeof(std::uint64_t));
  if (is_pull) {
    pull(*table, request, keys_of(request, payload), answer);
    result.rows = request.rows;
  }
  if (request.op == PsOp::learning_rate && is_new) {
    float rate = 0;
    require_payload(payload.size() == sizeof rate);
    std::memcpy(&rate, payload.data(), sizeof rate);
    TableSpec changed = table->spec;
    changed.optimizer.learning_rate = rate;
    check_table_spec(changed);
    table->spec = changed;
  }
  if (is_numbered(request.op) && is_new) worker.applied = request.sequence;
  if (request.op == PsOp::clock && is_new) worker.clock = std::max(worker.clock, request.clock);
  if (request.op == PsOp::leave) {
    worker.left = true;
    forget_pulls(request.worker);
  }
  if (request.op == PsOp::clock || request.op == PsOp::leave) settle();
  result.min_clock = workers_.min_clock(settled_);
  if (table != nullptr) result.version = table->version;
  return result;
}

void Shard::remove_evicted(const PsRequest& request, std::span<const std::byte> keys) {
  require_payload(keys.size() == std::size_t{request.rows} * sizeof(std::uint64_t));
  Table& table = table_of(request);
  for (std::size_t i = 0; i < request.rows; ++i) table.rows.remove(key_at(keys, i));
  table.evicted += request.rows;
}

PsAnswer Shard::hello(const PsRequest& request, std::span<const std::byte> payload) {
  PsHello greeting;
  require_payload(payload.size() == sizeof greeting);
  std::memcpy(&greeting, payload.data(), sizeof greeting);
  if (greeting.protocol != PsHello::kProtocol) {
    throw InvalidArgument("worker " + std::to_string(request.worker) +
                          " has another version of hvd than its parameter servers");
  }
  const auto [worker, is_known] = workers_.greet(request, greeting, settled_);
  if (!is_known) {
    drop_pending(request.worker, worker.clock);  // it does these clocks again
    forget_pulls(request.worker);
  }
  settle();
  return {.sequence = request.sequence,
          .version = worker.clock,
          .min_clock = workers_.min_clock(settled_),
          .rows = is_known || is_restored_ ? 1u : 0u,
          .applied = worker.applied};
}

PsAnswer Shard::open_table(const PsRequest& request, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  TableSpec spec = read_table_spec(reader);
  reader.expect_end();
  const std::size_t number = find_or_add(std::move(spec));
  return {
      .sequence = request.sequence, .version = tables_[number]->version, .rows = static_cast<std::uint32_t>(number)};
}

std::size_t Shard::find_or_add(TableSpec spec) {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    TableSpec known = tables_[i]->spec;
    if (known.name != spec.name) continue;
    known.optimizer.learning_rate = spec.optimizer.learning_rate;  // may have changed since
    if (!(known == spec)) {
      throw Mismatch("table '" + spec.name +
                     "' is open with other arguments: all workers, and snapshots, must have the same");
    }
    return i;
  }
  if (tables_.size() == kMaxTables) throw InvalidArgument("more than 4096 tables");
  tables_.push_back(std::make_unique<Table>(std::move(spec)));
  return tables_.size() - 1;
}

void Shard::pull(Table& table, const PsRequest& request, std::span<const std::byte> keys, std::span<std::byte> answer) {
  const std::size_t width = table.spec.width, bytes = width * sizeof(float);
  require_payload(answer.size() == request.rows * bytes);
  if (!table.failure.empty()) throw InvalidArgument(table.failure);
  for (std::size_t i = 0; i < request.rows; ++i) table.rows.prefetch(key_at(keys, i));
  std::vector<float> fresh;
  for (std::size_t i = 0; i < request.rows; ++i) {
    const std::uint64_t key = key_at(keys, i);
    std::byte* const to = answer.data() + i * bytes;
    if (RowTable::Row* const row = table.rows.find(key)) {
      row->used = time_of(table);
      std::memcpy(to, row->values(), bytes);
      continue;
    }
    fresh.resize(width + state_size(table.spec.optimizer, width));
    initialize_row(table.spec, key, fresh.data());
    std::memcpy(to, fresh.data(), bytes);
  }
  ++table.pulls;
  if (table.pulled.size() < workers_.size()) table.pulled.resize(workers_.size(), kNever);
  table.pulled[request.worker] = table.version;
  if (table.spec.compensation == 0) return;
  RowTable& kept = table.pulled_rows.try_emplace(request.worker, width).first->second;
  for (std::size_t i = 0; i < request.rows; ++i) {
    RowTable::Row* row = kept.find(key_at(keys, i));
    if (row == nullptr) row = &kept.insert(key_at(keys, i));
    std::memcpy(row->values(), answer.data() + i * bytes, bytes);
  }
}

// Called before anything changes. Throws InvalidArgument if there is no room for a copy of the rows that are pulled.
void Shard::check_pull(const Table& table, const PsRequest& request, std::span<const std::byte> keys) const {
  const auto kept = table.pulled_rows.find(request.worker);
  std::size_t missing = 0;
  for (std::size_t i = 0; i < request.rows; ++i) {
    const std::uint64_t key = key_at(keys, i);
    if (key >= table.spec.rows) throw InvalidArgument("table '" + table.spec.name + "' has no such row");
    if (kept == table.pulled_rows.end() || kept->second.find(key) == nullptr) ++missing;
  }
  if (missing == 0) return;
  const RowTable none(table.spec.width);
  check_room(table, 0, (kept == table.pulled_rows.end() ? none : kept->second).bytes_of_more(missing));
}

void Shard::forget_pulls(std::uint32_t worker) {
  for (const auto& table : tables_) {
    if (worker < table->pulled.size()) table->pulled[worker] = kNever;
    table->pulled_rows.erase(worker);
  }
}

std::span<const std::byte> Shard::compensate(const PsRequest& request, std::span<const std::byte> payload) {
  if (request.op != PsOp::push && request.op != PsOp::push_pull) return payload;
  const Table& table = table_of(request);
  const float factor = table.spec.compensation;
  if (factor == 0) return payload;
  const auto pulled = table.pulled_rows.find(request.worker);
  const std::size_t width = table.spec.width, keys = std::size_t{request.rows} * sizeof(std::uint64_t);
  require_payload(payload.size() == keys + request.rows * width * sizeof(float));
  if (pulled == table.pulled_rows.end()) return payload;
  compensated_.assign(payload.begin(), payload.end());
  for (std::size_t i = 0; i < request.rows; ++i) {
    const RowTable::Row* const now = table.rows.find(key_at(payload, i));
    const RowTable::Row* const then = pulled->second.find(key_at(payload, i));
    if (now == nullptr || then == nullptr) continue;
    auto* const gradient = reinterpret_cast<float*>(compensated_.data() + keys) + i * width;
    for (std::size_t c = 0; c < width; ++c) {
      gradient[c] += factor * gradient[c] * gradient[c] * (now->values()[c] - then->values()[c]);
    }
  }
  return compensated_;
}

void Shard::push(Table& table, const PsRequest& request, std::span<const std::byte> payload) {
  if (!table.failure.empty()) throw InvalidArgument(table.failure);
  const auto keys = keys_of(request, payload);
  keys_.resize(request.rows);
  std::memcpy(keys_.data(), keys.data(), keys.size());
  const std::uint64_t version = table.version;
  if (table.spec.consistency == Consistency::synchronous) {
    keep_pending(table, request, payload.subspan(keys.size()));
  } else {
    // Keys precede the gradients and have 8 bytes each, so that these are aligned as the payload is.
    update(table, keys_, reinterpret_cast<const float*>(payload.data() + keys.size()));
  }
  ++table.pushes;
  const std::uint64_t pulled = request.worker < table.pulled.size() ? table.pulled[request.worker] : kNever;
  if (pulled != kNever) table.staleness.add(version - pulled);
}

// Makes the rows that are missing, and returns whether a key comes twice. Throws InvalidArgument, before anything has
// changed, if there is no such row, or no room for all of them and `more_bytes`.
bool Shard::make_rows(Table& table, std::span<const std::uint64_t> keys, std::size_t more_bytes) {
  const TableSpec& spec = table.spec;
  const bool is_limited = !spec.dense && spec.rows > 0 && !follows_;
  const std::uint32_t touch = ++table.touch;
  std::size_t missing = 0;
  bool has_duplicates = false;
  for (const std::uint64_t key : keys) table.rows.prefetch(key);
  for (const std::uint64_t key : keys) {
    if (spec.dense && key >= spec.rows) throw InvalidArgument("table '" + spec.name + "' has no such row");
    RowTable::Row* const row = table.rows.find(key);
    if (row == nullptr) {
      if (shard_of(spec, key, shards_) != number_)
        throw InvalidArgument("table '" + spec.name + "' has no such row here");
      ++missing;
      continue;
    }
    has_duplicates = has_duplicates || row->touch == touch;
    row->touch = touch;  // also keeps it from being evicted below
  }
  const std::uint64_t limit = (spec.rows + parts_ - 1) / parts_;
  if (is_limited && keys.size() > limit && std::unordered_set(keys.begin(), keys.end()).size() > limit) {
    throw InvalidArgument("table '" + spec.name + "': a push of more rows than it may keep");
  }
  const std::size_t until_full = limit - std::min<std::size_t>(limit, table.rows.size());
  check_room(table, is_limited ? std::min(missing, until_full) : missing, more_bytes);
  if (missing == 0) return has_duplicates;
  for (const std::uint64_t key : keys) {
    if (table.rows.find(key) != nullptr) continue;
    while (is_limited && table.rows.size() >= limit) evict_one(table);
    RowTable::Row& row = table.rows.insert(key);
    initialize_row(spec, key, row.values());
    row.touch = touch;
    row.used = time_of(table);
    --missing;
  }
  return has_duplicates || missing > 0;
}

void Shard::fill(Table& table, const PsRequest& request, std::span<const std::byte> payload) {
  const auto keys = keys_of(request, payload);
  if (!table.spec.dense) throw InvalidArgument("table '" + table.spec.name + "' is sparse: its rows are not filled");
  check_room(table, request.rows);
  for (std::size_t i = 0; i < request.rows; ++i) {
    const std::uint64_t key = key_at(keys, i);
    if (key >= table.spec.rows || shard_of(table.spec, key, shards_) != number_) {
      throw InvalidArgument("table '" + table.spec.name + "' has no such row here");
    }
    if (table.rows.find(key) != nullptr) continue;
    RowTable::Row& row = table.rows.insert(key);
    initialize_row(table.spec, key, row.values());
    const std::size_t bytes = table.spec.width * sizeof(float);
    std::memcpy(row.values(), payload.data() + keys.size() + i * bytes, bytes);
  }
}

// Applies a gradient for each key; those of a key that comes several times are added up first, in their order.
void Shard::update(Table& table, std::span<const std::uint64_t> keys, const float* gradients) {
  const std::size_t width = table.spec.width;
  const bool has_duplicates = make_rows(table, keys);
  if (!has_duplicates) {
    update_rows(table, keys, gradients);
  } else {
    std::unordered_map<std::uint64_t, std::size_t> places;
    std::vector<std::uint64_t> order;
    sums_.clear();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [place, is_new] = places.try_emplace(keys[i], order.size());
      const float* const gradient = gradients + i * width;
      if (is_new) {
        order.push_back(keys[i]);
        sums_.insert(sums_.end(), gradient, gradient + width);
      } else {
        add_values(sums_.data() + place->second * width, gradient, width);
      }
    }
    update_rows(table, order, sums_.data());
  }
  ++table.version;
}

// Of rows that exist, each once.
void Shard::update_rows(Table& table, std::span<const std::uint64_t> keys, const float* gradients) {
  if (table.function) return call_function(table, keys, gradients);
  const std::size_t width = table.spec.width;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    RowTable::Row& row = *table.rows.find(keys[i]);
    row.used = time_of(table);
    update_row(table.spec.optimizer, row.values(), gradients + i * width, width);
  }
}

// With copies of the rows: what the function cannot do has not happened.
void Shard::call_function(Table& table, std::span<const std::uint64_t> keys, const float* gradients) {
  const OptimizerSpec& optimizer = table.spec.optimizer;
  const std::size_t width = table.spec.width, state = optimizer.state;
  rows_.resize(keys.size() * width);
  states_.resize(keys.size() * state);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const float* const row = table.rows.find(keys[i])->values();
    std::copy_n(row, width, rows_.data() + i * width);
    std::copy_n(row + width, state, states_.data() + i * state);
  }
  const bool done = table.function({.rows = rows_.data(),
                                    .state = states_.data(),
                                    .gradients = gradients,
                                    .count = keys.size(),
                                    .columns = width,
                                    .state_columns = state,
                                    .learning_rate = optimizer.learning_rate});
  if (!done) {
    throw InvalidArgument("table '" + table.spec.name + "': the update '" + optimizer.function +
                          "' has failed on server " + std::to_string(number_) + ", whose output says why");
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    RowTable::Row& row = *table.rows.find(keys[i]);
    row.used = time_of(table);
    std::copy_n(rows_.data() + i * width, width, row.values());
    std::copy_n(states_.data() + i * state, state, row.values() + width);
  }
}

// The unit of RowTable::Row::used.
std::uint32_t Shard::time_of(const Table& table) const {
  return table.spec.max_age > 0 ? settled_ : static_cast<std::uint32_t>(table.version);
}

std::size_t Shard::bytes() const {
  std::size_t sum = 0;
  for (const auto& table : tables_) sum += table->bytes();
  return sum;
}

void Shard::check_room(const Table& table, std::size_t new_rows, std::size_t more_bytes) const {
  if (memory_ == 0 || follows_) return;
  const std::size_t more = table.rows.bytes_of_more(new_rows) + more_bytes;
  if (more == 0 || bytes() + more <= memory_) return;
  throw InvalidArgument("table '" + table.spec.name + "' is full: shard " + std::to_string(number_) + " has " +
                        std::to_string(bytes()) + " bytes of at most " + std::to_string(memory_) +
                        " (HVD_SERVER_MEMORY), and needs " + std::to_string(more) + " more for " +
                        std::to_string(new_rows) +
                        " new rows: raise the limit, start more servers, or limit the table's rows");
}

void Shard::lead() {
  follows_ = false;
  for (const auto& table : tables_) table->aged_since = settled_;
}

std::vector<Shard::Evicted> Shard::take_evicted() {
  std::vector<Evicted> taken;
  if (!std::exchange(has_evicted_, false)) return taken;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    std::vector<std::uint64_t>& gone = tables_[i]->gone;
    if (!gone.empty()) taken.push_back({static_cast<std::uint16_t>(i), std::exchange(gone, {})});
  }
  return taken;
}

void Shard::evict(Table& table, std::uint64_t key) {
  table.rows.remove(key);
  ++table.evicted;
  if (!keeps_evicted_) return;
  table.gone.push_back(key);
  has_evicted_ = true;
}

// There is a row that the push in progress does not touch.
void Shard::evict_one(Table& table) {
  const RowTable::Row* oldest = nullptr;
  std::uint64_t dice = table.version * 31 + table.evicted;
  const std::uint32_t now = time_of(table);
  const auto try_row = [&](std::uint64_t number) {
    const RowTable::Row* const row = table.rows.at(number % table.rows.end());
    if (row == nullptr || row->touch == table.touch) return;
    if (oldest == nullptr || now - row->used > now - oldest->used) oldest = row;
  };
  for (int i = 0; i < kSampled; ++i) try_row(dice = mix64(dice));
  for (dice %= table.rows.end(); oldest == nullptr; ++dice) try_row(dice);  // the push touches nearly all
  evict(table, oldest->key);
}

// Looks at as many rows as make all of them within max_age clocks: a row goes between that and twice that age.
void Shard::evict_aged(Table& table, std::uint32_t clocks) {
  const std::uint64_t end = table.rows.end(), max_age = table.spec.max_age;
  for (std::uint64_t left = (end * std::min<std::uint64_t>(clocks, max_age) + max_age - 1) / max_age; left > 0;
       --left) {
    if (table.swept >= end) table.swept = 0;
    const RowTable::Row* const row = table.rows.at(table.swept++);
    if (row == nullptr || std::min(settled_ - row->used, settled_ - table.aged_since) <= max_age) continue;
    evict(table, row->key);
  }
}

// Its rows are made now: what cannot be applied when the clock ends is refused to who pushes it.
void Shard::keep_pending(Table& table, const PsRequest& request, std::span<const std::byte> gradients) {
  if (keys_.empty()) return;
  const std::size_t more = keys_.size() * sizeof(std::uint64_t) + gradients.size();
  make_rows(table, keys_, more);
  Pending& pending = table.pending[std::max(request.clock, settled_)][request.worker];
  pending.keys.insert(pending.keys.end(), keys_.begin(), keys_.end());
  const auto* const values = reinterpret_cast<const float*>(gradients.data());  // aligned, see push()
  pending.gradients.insert(pending.gradients.end(), values, values + gradients.size() / sizeof(float));
  table.pending_bytes += more;
}

void Shard::drop_pending(std::uint32_t worker, std::uint32_t first_clock) {
  for (const auto& table : tables_) {
    for (auto clock = table->pending.lower_bound(first_clock); clock != table->pending.end();) {
      clock->second.erase(worker);
      clock = clock->second.empty() ? table->pending.erase(clock) : std::next(clock);
    }
    table->count_pending();
  }
}

// The pushes of clocks that every worker has finished take effect.
void Shard::settle() {
  const std::uint32_t reached = workers_.min_clock(settled_);
  if (reached <= settled_) return;
  const std::uint32_t clocks = reached - std::exchange(settled_, reached);
  for (const auto& table : tables_) {
    if (table->spec.max_age > 0 && !follows_) evict_aged(*table, clocks);
    while (!table->pending.empty() && table->pending.begin()->first < reached) {
      settle(*table, table->pending.begin()->first);
    }
  }
}

// The sum of what workers have pushed, in their order. Usually of the same keys, as in a dense table: then it is made
// in the first one's memory.
Shard::Pending Shard::sum_of(std::map<std::uint32_t, Pending>& by_worker, std::size_t width) {
  Pending& first = by_worker.begin()->second;
  const bool is_ascending = std::ranges::adjacent_find(first.keys, std::greater_equal()) == first.keys.end();
  const auto is_alike = [&](const auto& entry) { return entry.second.keys == first.keys; };
  if (is_ascending && std::ranges::all_of(by_worker, is_alike)) {
    for (auto other = std::next(by_worker.begin()); other != by_worker.end(); ++other) {
      add_values(first.gradients.data(), other->second.gradients.data(), first.gradients.size());
    }
    return std::move(first);
  }
  Pending sum;
  std::unordered_map<std::uint64_t, std::size_t> places;
  for (const auto& [worker, pending] : by_worker) {
    for (std::size_t i = 0; i < pending.keys.size(); ++i) {
      const auto [place, is_new] = places.try_emplace(pending.keys[i], sum.keys.size());
      const float* const gradient = pending.gradients.data() + i * width;
      if (is_new) {
        sum.keys.push_back(pending.keys[i]);
        sum.gradients.insert(sum.gradients.end(), gradient, gradient + width);
      } else {
        add_values(sum.gradients.data() + place->second * width, gradient, width);
      }
    }
  }
  return sum;
}

void Shard::settle(Table& table, std::uint32_t clock) {
  const std::size_t count = workers_.contributors(table.pending[clock]);
  Pending sum = sum_of(table.pending[clock], table.spec.width);
  table.pending.erase(clock);
  table.count_pending();
  if (table.spec.average) {
    // As an allreduce scales: in double precision, rounded once.
    const double share = 1.0 / static_cast<double>(count);
    for (float& value : sum.gradients) value = static_cast<float>(static_cast<double>(value) * share);
  }
  try {
    update(table, sum.keys, sum.gradients.data());
  } catch (const InvalidArgument& error) {  // of a custom update; whose clock ends is not to blame
    table.failure = error.what();
  }
}

void Shard::forget(std::uint32_t worker) {
  if (!workers_.forget(worker)) return;
  forget_pulls(worker);
  settle();
}

std::string Shard::stats() const {
  std::string text;
  const auto line = [&](const std::string& of, const char* what, std::uint64_t value) {
    text += of + " " + what + " " + std::to_string(value) + "\n";
  };
  line("-", "bytes", bytes());
  line("-", "min_clock", workers_.min_clock(settled_));
  for (const auto& table : tables_) {
    const std::string& name = table->spec.name;
    line(name, "rows", table->rows.size());
    line(name, "bytes", table->bytes());
    line(name, "updates", table->version);
    line(name, "pushes", table->pushes);
    line(name, "pulls", table->pulls);
    line(name, "evicted", table->evicted);
    line(name, "staleness_median", table->staleness.median());
    line(name, "staleness_worst", table->staleness.worst());
  }
  return text;
}

void Shard::count_into(ShardMetrics& metrics) const {
  std::uint64_t pushes = 0, pulls = 0, rows = 0, median = 0, worst = 0;
  for (const auto& table : tables_) {
    pushes += table->pushes;
    pulls += table->pulls;
    rows += table->rows.size();
    median = std::max(median, table->staleness.median());
    worst = std::max(worst, table->staleness.worst());
  }
  metrics.pushes.set(pushes);
  metrics.pulls.set(pulls);
  metrics.rows.set(rows);
  metrics.bytes.set(bytes());
  metrics.staleness_median.set(median);
  metrics.staleness_worst.set(worst);
  metrics.number.set(number_ + 1);
}

// ---- State

Bytes Shard::write_head() const {
  ByteWriter to;
  to.put(kHead);
  to.put(number_);
  to.put(shards_);
  to.put(job_);
  to.put(settled_);
  workers_.write(to);
  to.put(static_cast<std::uint32_t>(tables_.size()));
  for (const auto& table : tables_) {
    write_table_spec(table->spec, to);
    to.put(table->version);
    to.put(static_cast<std::uint32_t>(table->pending.size()));
    for (const auto& [clock, by_worker] : table->pending) {
      to.put(clock);
      to.put(static_cast<std::uint32_t>(by_worker.size()));
      for (const auto& [worker, pending] : by_worker) {
        to.put(worker);
        to.put(static_cast<std::uint32_t>(pending.keys.size()));
        to.put_bytes(std::as_bytes(std::span(pending.keys)));
        to.put_bytes(std::as_bytes(std::span(pending.gradients)));
      }
    }
  }
  return to.take();
}

Bytes Shard::write_state(Position& position) const {
  if (!std::exchange(position.begun, true)) return write_head();
  for (; position.table < tables_.size(); ++position.table, position.row = 0) {
    const Table& table = *tables_[position.table];
    if (position.row >= table.rows.end()) continue;
    const std::size_t floats = table.spec.width + state_size(table.spec.optimizer, table.spec.width);
    ByteWriter to;
    to.put(kRows);
    to.put_string(table.spec.name);
    const std::size_t bytes = sizeof(std::uint64_t) + floats * sizeof(float);
    const std::size_t at_most = std::max<std::size_t>(1, kPartBytes / bytes);
    for (std::size_t count = 0; count < at_most && position.row < table.rows.end(); ++position.row) {
      const RowTable::Row* const row = table.rows.at(position.row);
      if (row == nullptr) continue;
      to.put(row->key);
      to.put_bytes(std::as_bytes(std::span(row->values(), floats)));
      ++count;
    }
    return to.take();
  }
  return {};
}

bool Shard::is_own_state(std::span<const std::byte> part) const {
  ByteReader from(part);
  return from.get<std::uint8_t>() == kHead && from.get<std::uint32_t>() == number_ &&
         from.get<std::uint32_t>() == shards_ && from.get<std::uint64_t>() == job_;
}

void Shard::read_state(std::span<const std::byte> part) {
  ByteReader from(part);
  const auto kind = from.get<std::uint8_t>();
  if (kind == kHead) return read_head(from);
  if (kind == kRows) return read_rows(from);
  throw Internal("malformed state of a shard");
}

void Shard::read_head(ByteReader& from) {
  const auto number = from.get<std::uint32_t>(), shards = from.get<std::uint32_t>();
  const auto job = from.get<std::uint64_t>();
  const bool is_own = number == number_ && shards == shards_ && job == job_ && workers_.empty();
  const auto settled = from.get<std::uint32_t>();
  ShardWorkers workers(number_);
  workers.read(from);
  for (auto count = from.get_count(40); count > 0; --count) {
    Table& table = *tables_[find_or_add(read_table_spec(from))];
    table.version = std::max(table.version, from.get<std::uint64_t>());
    for (auto clocks = from.get_count(8); clocks > 0; --clocks) {
      const auto clock = from.get<std::uint32_t>();
      for (auto by_worker = from.get_count(8); by_worker > 0; --by_worker) {
        const auto worker = from.get<std::uint32_t>();
        const std::size_t width = table.spec.width;
        const auto rows = from.get_count(sizeof(std::uint64_t) + width * sizeof(float));
        Pending pending;
        pending.keys.resize(rows);
        pending.gradients.resize(rows * width);
        for (auto& key : pending.keys) key = read_key(table.spec, from);
        for (auto& value : pending.gradients) value = from.get<float>();
        if (is_own) table.pending[clock][worker] = std::move(pending);
      }
    }
    table.count_pending();
  }
  from.expect_end();
  is_restored_ = true;
  if (!is_own) return;
  workers_ = std::move(workers);
  settled_ = settled;
}

void Shard::read_rows(ByteReader& from) {
  const std::string name = from.get_string();
  const auto found = std::ranges::find_if(tables_, [&](const auto& table) { return table->spec.name == name; });
  if (found == tables_.end()) throw Internal("malformed state of a shard: rows of a table that it does not have");
  Table& table = **found;
  const std::size_t floats = table.spec.width + state_size(table.spec.optimizer, table.spec.width);
  while (from.remaining() > 0) {
    const std::uint64_t key = read_key(table.spec, from);
    const std::string_view bytes = from.get_text(floats * sizeof(float));
    if (shard_of(table.spec, key, shards_) != number_) continue;
    RowTable::Row* row = table.rows.find(key);
    if (row == nullptr) {
      check_room(table, 1);
      row = &table.rows.insert(key);
      row->used = time_of(table);
    }
    std::memcpy(row->values(), bytes.data(), bytes.size());
  }
}

}  // namespace hvd
