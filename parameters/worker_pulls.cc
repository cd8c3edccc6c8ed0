#include "parameters/worker_pulls.h"

#include <algorithm>
#include <limits>

namespace hvd {

namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

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

std::size_t WorkerPulls::bytes() const {
  std::size_t sum = 0;
  for (const auto& [worker, kept] : rows_) sum += kept.bytes();
  return sum;
}

std::size_t WorkerPulls::bytes_of_more(std::uint32_t worker, std::span<const std::uint64_t> keys) const {
  const RowTable* const kept = rows(worker);
  const auto is_missing = [&](std::uint64_t key) { return kept == nullptr || kept->find(key) == nullptr; };
  const auto missing = static_cast<std::size_t>(std::ranges::count_if(keys, is_missing));
  if (missing == 0) return 0;
  return kept == nullptr ? RowTable(width_).bytes_of_more(missing) : kept->bytes_of_more(missing);
}

void WorkerPulls::pulled(std::uint32_t worker, std::uint64_t version) {
  if (worker >= versions_.size()) versions_.resize(worker + 1, kNever);
  versions_[worker] = version;
}

void WorkerPulls::pushed(std::uint32_t worker, std::uint64_t version) {
  if (worker < versions_.size() && versions_[worker] != kNever) staleness_.add(version - versions_[worker]);
}

void WorkerPulls::keep(std::uint32_t worker, std::span<const std::uint64_t> keys, const float* values) {
  RowTable& kept = rows_.try_emplace(worker, width_).first->second;
  for (const std::uint64_t key : keys) {
    RowTable::Row* row = kept.find(key);
    if (row == nullptr) row = &kept.insert(key);
    std::copy_n(values, width_, row->values());
    values += width_;
  }
}

const RowTable* WorkerPulls::rows(std::uint32_t worker) const {
  const auto found = rows_.find(worker);
  return found == rows_.end() ? nullptr : &found->second;
}

void WorkerPulls::forget(std::uint32_t worker) {
  if (worker < versions_.size()) versions_[worker] = kNever;
  rows_.erase(worker);
}

}  // namespace hvd
