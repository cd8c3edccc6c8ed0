#include "parameters/shard_table.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "parameters/optimizer.h"

namespace hvd {

namespace {

constexpr std::size_t kMaxTables = 1u << 12;

std::uint64_t key_at(std::span<const std::byte> keys, std::size_t i) {
  std::uint64_t key = 0;
  std::memcpy(&key, keys.data() + i * sizeof key, sizeof key);
  return key;
}

std::span<const std::byte> keys_of(const PsRequest& request, std::span<const std::byte> payload) {
  const std::size_t bytes = std::size_t{request.rows} * sizeof(std::uint64_t);
  require_payload(bytes <= payload.size());
  return payload.first(bytes);
}

void copy_keys(const PsRequest& request, std::span<const std::byte> payload, std::vector<std::uint64_t>& to) {
  const auto keys = keys_of(request, payload);
  to.resize(request.rows);
  std::memcpy(to.data(), keys.data(), keys.size());
}

// Keys precede the gradients and have 8 bytes each, so that these are aligned as the payload is.
std::span<const float> gradients_of(const PsRequest& request, std::span<const std::byte> payload) {
  const auto bytes = payload.subspan(keys_of(request, payload).size());
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

// ---- The tables of a shard

std::size_t ShardTables::bytes() const {
  std::size_t sum = 0;
  for (const auto& table : all) sum += table->bytes();
  return sum;
}

bool ShardTables::has_room(std::size_t more_bytes) const {
  return memory == 0 || follows || more_bytes == 0 || bytes() + more_bytes <= memory;
}

ShardTable* ShardTables::find(const std::string& name) const {
  const auto found = std::ranges::find_if(all, [&](const auto& table) { return table->spec().name == name; });
  return found == all.end() ? nullptr : found->get();
}

std::size_t ShardTables::open(TableSpec spec) {
  for (std::size_t number = 0; number < all.size(); ++number) {
    TableSpec known = all[number]->spec();
    if (known.name != spec.name) continue;
    known.optimizer.learning_rate = spec.optimizer.learning_rate;  // may have changed since
    if (known == spec) return number;
    throw Mismatch("table '" + spec.name +
                   "' is open with other arguments: all workers, and snapshots, must have the same");
  }
  if (all.size() == kMaxTables) throw InvalidArgument("more than 4096 tables");
  all.push_back(std::make_unique<ShardTable>(*this, static_cast<std::uint16_t>(all.size()), std::move(spec)));
  return all.size() - 1;
}

void ShardTables::forget_pulls(std::uint32_t worker) {
  for (const auto& table : all) table->pulls().forget(worker);
}

// ---- One of them

ShardTable::ShardTable(ShardTables& tables, std::uint16_t number, TableSpec spec)
    : tables_(tables),
      spec_(std::move(spec)),
      rows_(spec_.width + state_size(spec_.optimizer, spec_.width)),
      eviction_(number, rows_),
      pulls_(spec_.width) {
  if (spec_.optimizer.rule == UpdateRule::custom) function_ = find_update(spec_.optimizer.function);
}

bool ShardTable::is_complete() const {
  // Of the first number and of the one behind the last: the smallest k for which k * shards / rows is as large.
  const auto first = [&](std::uint64_t shard) { return (shard * spec_.rows + tables_.shards - 1) / tables_.shards; };
  return rows_.size() == first(tables_.shard + 1) - first(tables_.shard);
}

void ShardTable::check_pull(const PsRequest& request, std::span<const std::byte> payload) {
  if (spec_.compensation == 0) return;
  std::vector<std::uint64_t>& keys = tables_.scratch.keys;
  copy_keys(request, payload, keys);
  const auto is_there = [&](std::uint64_t key) { return key < spec_.rows; };
  if (!std::ranges::all_of(keys, is_there)) throw InvalidArgument("table '" + spec_.name + "' has no such row");
  check_room(0, pulls_.bytes_of_more(request.worker, keys));
}

void ShardTable::pull(const PsRequest& request, std::span<const std::byte> payload, std::span<std::byte> answer) {
  const auto keys = keys_of(request, payload);
  const std::size_t width = spec_.width, bytes = width * sizeof(float);
  require_payload(answer.size() == request.rows * bytes);
  if (!failure_.empty()) throw InvalidArgument(failure_);
  for (std::size_t i = 0; i < request.rows; ++i) rows_.prefetch(key_at(keys, i));
  std::vector<float> fresh;
  for (std::size_t i = 0; i < request.rows; ++i) {
    const std::uint64_t key = key_at(keys, i);
    std::byte* const to = answer.data() + i * bytes;
    if (RowTable::Row* const row = rows_.find(key)) {
      row->used = now();
      std::memcpy(to, row->values(), bytes);
      continue;
    }
    fresh.resize(width + state_size(spec_.optimizer, width));
    initialize_row(spec_, key, fresh.data());
    std::memcpy(to, fresh.data(), bytes);
  }
  ++counts_.pulls;
  pulls_.pulled(request.worker, counts_.updates);
  if (spec_.compensation == 0) return;
  copy_keys(request, payload, tables_.scratch.keys);
  pulls_.keep(request.worker, tables_.scratch.keys, reinterpret_cast<const float*>(answer.data()));
}

std::span<const std::byte> ShardTable::compensate(const PsRequest& request, std::span<const std::byte> payload) {
  const float factor = spec_.compensation;
  if (factor == 0) return payload;
  const std::size_t width = spec_.width, keys = std::size_t{request.rows} * sizeof(std::uint64_t);
  require_rows(request, payload, width);
  const RowTable* const pulled = pulls_.rows(request.worker);
  if (pulled == nullptr) return payload;
  Bytes& compensated = tables_.scratch.compensated;
  compensated.assign(payload.begin(), payload.end());
  for (std::size_t i = 0; i < request.rows; ++i) {
    const RowTable::Row* const now = rows_.find(key_at(payload, i));
    const RowTable::Row* const then = pulled->find(key_at(payload, i));
    if (now == nullptr || then == nullptr) continue;
    auto* const gradient = reinterpret_cast<float*>(compensated.data() + keys) + i * width;
    for (std::size_t c = 0; c < width; ++c) {
      gradient[c] += factor * gradient[c] * gradient[c] * (now->values()[c] - then->values()[c]);
    }
  }
  return compensated;
}

void ShardTable::push(const PsRequest& request, std::span<const std::byte> payload) {
  if (!failure_.empty()) throw InvalidArgument(failure_);
  std::vector<std::uint64_t>& keys = tables_.scratch.keys;
  copy_keys(request, payload, keys);
  const std::span<const float> gradients = gradients_of(request, payload);
  const std::uint64_t version = counts_.updates;
  if (spec_.consistency != Consistency::synchronous) {
    update(keys, gradients.data());
  } else if (!keys.empty()) {
    // The rows are made now: what cannot be applied when the clock ends is refused to who pushes it.
    make_rows(keys, std::span(keys).size_bytes() + gradients.size_bytes());
    pending_.add(std::max(request.clock, tables_.applied_clock), request.worker, keys, gradients);
  }
  ++counts_.pushes;
  pulls_.pushed(request.worker, version);
}

void ShardTable::fill(const PsRequest& request, std::span<const std::byte> payload) {
  if (!spec_.dense) throw InvalidArgument("table '" + spec_.name + "' is sparse: its rows are not filled");
  std::vector<std::uint64_t>& keys = tables_.scratch.keys;
  copy_keys(request, payload, keys);
  const auto is_here = [&](std::uint64_t key) {
    return key < spec_.rows && shard_of(spec_, key, tables_.shards) == tables_.shard;
  };
  if (!std::ranges::all_of(keys, is_here)) throw InvalidArgument("table '" + spec_.name + "' has no such row here");
  const auto is_missing = [&](std::uint64_t key) { return rows_.find(key) == nullptr; };
  check_room(static_cast<std::size_t>(std::ranges::count_if(keys, is_missing)));
  const std::span<const float> values = gradients_of(request, payload);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (rows_.find(keys[i]) != nullptr) continue;
    RowTable::Row& row = rows_.insert(keys[i]);
    initialize_row(spec_, keys[i], row.values());
    std::copy_n(values.data() + i * spec_.width, spec_.width, row.values());
  }
}

void ShardTable::remove_evicted(const PsRequest& request, std::span<const std::byte> payload) {
  require_payload(payload.size() == std::size_t{request.rows} * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < request.rows; ++i) eviction_.evict(key_at(payload, i), nullptr);
}

void ShardTable::set_learning_rate(std::span<const std::byte> payload) {
  float rate = 0;
  require_payload(payload.size() == sizeof rate);
  std::memcpy(&rate, payload.data(), sizeof rate);
  TableSpec changed = spec_;
  changed.optimizer.learning_rate = rate;
  check_table_spec(changed);
  spec_ = changed;
}

void ShardTable::apply_finished_clocks(std::uint32_t clocks, const ShardWorkers& workers) {
  if (spec_.max_age > 0 && !tables_.follows) {
    eviction_.evict_aged(tables_.applied_clock, clocks, spec_.max_age, tables_.kept());
  }
  while (const PendingPushes::ByWorker* const pushes = pending_.first_below(tables_.applied_clock)) {
    const std::size_t count = workers.contributors(*pushes);
    PendingPushes::Push sum = pending_.take_first_sum(spec_.width);
    if (spec_.average) {
      // As an allreduce scales: in double precision, rounded once.
      const double share = 1.0 / static_cast<double>(count);
      for (float& value : sum.gradients) value = static_cast<float>(static_cast<double>(value) * share);
    }
    try {
      update(sum.keys, sum.gradients.data());
    } catch (const InvalidArgument& error) {  // of a custom update; whose clock ends is not to blame
      failure_ = error.what();
    }
  }
}

void ShardTable::restore_row(std::uint64_t key, std::span<const std::byte> values) {
  if (shard_of(spec_, key, tables_.shards) != tables_.shard) return;
  RowTable::Row* row = rows_.find(key);
  if (row == nullptr) {
    check_room(1);
    row = &rows_.insert(key);
    row->used = now();
  }
  std::memcpy(row->values(), values.data(), values.size());
}

void ShardTable::restore_version(std::uint64_t version) { counts_.updates = std::max(counts_.updates, version); }

// ---- Updates

// Applies a gradient for each key; those of a key that comes several times are added up first, in their order.
void ShardTable::update(std::span<const std::uint64_t> keys, const float* gradients) {
  const bool has_duplicates = make_rows(keys);
  if (!has_duplicates) {
    update_rows(keys, gradients);
  } else {
    std::unordered_map<std::uint64_t, std::size_t> places;
    std::vector<std::uint64_t> order;
    std::vector<float>& sums = tables_.scratch.sums;
    sums.clear();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [place, is_new] = places.try_emplace(keys[i], order.size());
      const float* const gradient = gradients + i * spec_.width;
      if (is_new) {
        order.push_back(keys[i]);
        sums.insert(sums.end(), gradient, gradient + spec_.width);
      } else {
        add_values(sums.data() + place->second * spec_.width, gradient, spec_.width);
      }
    }
    update_rows(order, sums.data());
  }
  ++counts_.updates;
}

// Of rows that exist, each once.
void ShardTable::update_rows(std::span<const std::uint64_t> keys, const float* gradients) {
  if (function_) return call_function(keys, gradients);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    RowTable::Row& row = *rows_.find(keys[i]);
    row.used = now();
    update_row(spec_.optimizer, row.values(), gradients + i * spec_.width, spec_.width);
  }
}

// With copies of the rows: what the function cannot do has not happened.
void ShardTable::call_function(std::span<const std::uint64_t> keys, const float* gradients) {
  const OptimizerSpec& optimizer = spec_.optimizer;
  const std::size_t width = spec_.width, state = optimizer.state;
  std::vector<float>&rows = tables_.scratch.rows, &states = tables_.scratch.states;
  rows.resize(keys.size() * width);
  states.resize(keys.size() * state);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const float* const row = rows_.find(keys[i])->values();
    std::copy_n(row, width, rows.data() + i * width);
    std::copy_n(row + width, state, states.data() + i * state);
  }
  const bool done = function_({.rows = rows.data(),
                               .state = states.data(),
                               .gradients = gradients,
                               .count = keys.size(),
                               .columns = width,
                               .state_columns = state,
                               .learning_rate = optimizer.learning_rate});
  if (!done) {
    throw InvalidArgument("table '" + spec_.name + "': the update '" + optimizer.function + "' has failed on server " +
                          std::to_string(tables_.shard) + ", whose output says why");
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    RowTable::Row& row = *rows_.find(keys[i]);
    row.used = now();
    std::copy_n(rows.data() + i * width, width, row.values());
    std::copy_n(states.data() + i * state, state, row.values() + width);
  }
}

std::uint32_t ShardTable::now() const {
  return spec_.max_age > 0 ? tables_.applied_clock : static_cast<std::uint32_t>(counts_.updates);
}

// ---- Room

// Makes the rows that are missing, and returns whether a key comes twice. Throws InvalidArgument, before anything has
// changed, if there is no such row, or no room for all of them and `more_bytes`.
bool ShardTable::make_rows(std::span<const std::uint64_t> keys, std::size_t more_bytes) {
  const bool is_limited = !spec_.dense && spec_.rows > 0 && !tables_.follows;
  const std::uint32_t touch = eviction_.begin_push();
  std::size_t missing = 0;
  bool has_duplicates = false;
  for (const std::uint64_t key : keys) rows_.prefetch(key);
  for (const std::uint64_t key : keys) {
    if (spec_.dense && key >= spec_.rows) throw InvalidArgument("table '" + spec_.name + "' has no such row");
    RowTable::Row* const row = rows_.find(key);
    if (row == nullptr) {
      if (shard_of(spec_, key, tables_.shards) != tables_.shard) {
        throw InvalidArgument("table '" + spec_.name + "' has no such row here");
      }
      ++missing;
      continue;
    }
    has_duplicates = has_duplicates || row->touch == touch;
    row->touch = touch;  // also keeps it from being evicted below
  }
  const std::uint64_t limit = (spec_.rows + tables_.parts - 1) / tables_.parts;
  if (is_limited && keys.size() > limit && std::unordered_set(keys.begin(), keys.end()).size() > limit) {
    throw InvalidArgument("table '" + spec_.name + "': a push of more rows than it may keep");
  }
  const std::size_t until_full = limit - std::min<std::size_t>(limit, rows_.size());
  std::size_t new_rows = is_limited ? std::min(missing, until_full) : missing;
  if (!tables_.has_room(rows_.bytes_of_more(new_rows) + more_bytes)) {  // a new key may come several times
    std::unordered_set<std::uint64_t> new_keys(keys.begin(), keys.end());
    std::erase_if(new_keys, [&](std::uint64_t key) { return rows_.find(key) != nullptr; });
    new_rows = std::min(new_rows, new_keys.size());
    check_room(new_rows, more_bytes);
  }
  if (missing == 0) return has_duplicates;
  for (const std::uint64_t key : keys) {
    if (rows_.find(key) != nullptr) continue;
    while (is_limited && rows_.size() >= limit) eviction_.evict_one(now(), counts_.updates, tables_.kept());
    RowTable::Row& row = rows_.insert(key);
    initialize_row(spec_, key, row.values());
    row.touch = touch;
    row.used = now();
    --missing;
  }
  return has_duplicates || missing > 0;
}

void ShardTable::check_room(std::size_t new_rows, std::size_t more_bytes) const {
  const std::size_t more = rows_.bytes_of_more(new_rows) + more_bytes;
  if (tables_.has_room(more)) return;
  throw InvalidArgument("table '" + spec_.name + "' is full: shard " + std::to_string(tables_.shard) + " has " +
                        std::to_string(tables_.bytes()) + " bytes of at most " + std::to_string(tables_.memory) +
                        " (HVD_SERVER_MEMORY), and needs " + std::to_string(more) + " more" +
                        (new_rows > 0 ? " for " + std::to_string(new_rows) + " new rows" : "") +
                        ": raise the limit, start more servers, or limit the table's rows");
}

}  // namespace hvd
