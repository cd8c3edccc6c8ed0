#include "parameters/pending_pushes.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "parameters/optimizer.h"

namespace hvd {

namespace {

// In the order of workers. Usually all are of the same keys, as in a dense table: then the sum is made in the memory of
// the first one.
PendingPushes::Push sum_of(PendingPushes::ByWorker& pushes, std::size_t width) {
  PendingPushes::Push& first = pushes.begin()->second;
  const bool is_ascending = std::ranges::adjacent_find(first.keys, std::greater_equal()) == first.keys.end();
  const auto is_alike = [&](const auto& entry) { return entry.second.keys == first.keys; };
  if (is_ascending && std::ranges::all_of(pushes, is_alike)) {
    for (auto other = std::next(pushes.begin()); other != pushes.end(); ++other) {
      add_values(first.gradients.data(), other->second.gradients.data(), first.gradients.size());
    }
    return std::move(first);
  }
  PendingPushes::Push sum;
  std::unordered_map<std::uint64_t, std::size_t> places;
  for (const auto& [worker, push] : pushes) {
    for (std::size_t i = 0; i < push.keys.size(); ++i) {
      const auto [place, is_new] = places.try_emplace(push.keys[i], sum.keys.size());
      const float* const gradient = push.gradients.data() + i * width;
      if (is_new) {
        sum.keys.push_back(push.keys[i]);
        sum.gradients.insert(sum.gradients.end(), gradient, gradient + width);
      } else {
        add_values(sum.gradients.data() + place->second * width, gradient, width);
      }
    }
  }
  return sum;
}

}  // namespace

void PendingPushes::add(std::uint32_t clock, std::uint32_t worker, std::span<const std::uint64_t> keys,
                        std::span<const float> gradients) {
  Push& push = by_clock_[clock][worker];
  push.keys.insert(push.keys.end(), keys.begin(), keys.end());
  push.gradients.insert(push.gradients.end(), gradients.begin(), gradients.end());
  bytes_ += keys.size_bytes() + gradients.size_bytes();
}

void PendingPushes::drop(std::uint32_t worker, std::uint32_t first_clock) {
  for (auto clock = by_clock_.lower_bound(first_clock); clock != by_clock_.end();) {
    clock->second.erase(worker);
    clock = clock->second.empty() ? by_clock_.erase(clock) : std::next(clock);
  }
  count_bytes();
}

const PendingPushes::ByWorker* PendingPushes::first_below(std::uint32_t clock) const {
  return by_clock_.empty() || by_clock_.begin()->first >= clock ? nullptr : &by_clock_.begin()->second;
}

PendingPushes::Push PendingPushes::take_first_sum(std::size_t width) {
  Push sum = sum_of(by_clock_.begin()->second, width);
  by_clock_.erase(by_clock_.begin());
  count_bytes();
  return sum;
}

void PendingPushes::count_bytes() {
  bytes_ = 0;
  for (const auto& [clock, by_worker] : by_clock_) {
    for (const auto& [worker, push] : by_worker) bytes_ += push.bytes();
  }
}

void PendingPushes::write(ByteWriter& to) const {
  to.put(static_cast<std::uint32_t>(by_clock_.size()));
  for (const auto& [clock, by_worker] : by_clock_) {
    to.put(clock);
    to.put(static_cast<std::uint32_t>(by_worker.size()));
    for (const auto& [worker, push] : by_worker) {
      to.put(worker);
      to.put(static_cast<std::uint32_t>(push.keys.size()));
      to.put_bytes(std::as_bytes(std::span(push.keys)));
      to.put_bytes(std::as_bytes(std::span(push.gradients)));
    }
  }
}

void PendingPushes::read(ByteReader& from, const TableSpec& spec, bool keep) {
  for (auto clocks = from.get_count(8); clocks > 0; --clocks) {
    const auto clock = from.get<std::uint32_t>();
    for (auto workers = from.get_count(8); workers > 0; --workers) {
      const auto worker = from.get<std::uint32_t>();
      const auto rows = from.get_count(sizeof(std::uint64_t) + spec.width * sizeof(float));
      Push push;
      push.keys.resize(rows);
      push.gradients.resize(rows * spec.width);
      for (auto& key : push.keys) key = read_key(spec, from);
      for (auto& value : push.gradients) value = from.get<float>();
      if (keep) by_clock_[clock][worker] = std::move(push);
    }
  }
  count_bytes();
}

std::uint64_t read_key(const TableSpec& spec, ByteReader& from) {
  const auto key = from.get<std::uint64_t>();
  if (spec.dense && key >= spec.rows) throw Internal("malformed state of a shard: a row that its table does not have");
  return key;
}

}  // namespace hvd
