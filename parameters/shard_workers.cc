#include "parameters/shard_workers.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr std::uint32_t kMaxWorkers = 1u << 16;

[[noreturn]] void throw_replaced(const PsRequest& request) {
  throw Aborted("another process has taken the place of worker " + std::to_string(request.worker));
}

}  // namespace

void ShardWorkers::Worker::throw_if_refused(const PsRequest& request) const {
  const auto refusal = std::ranges::find(refusals, request.sequence, &Refusal::sequence);
  if (refusal != refusals.end()) throw InvalidArgument(refusal->why);
}

ShardWorkers::Worker& ShardWorkers::of(const PsRequest& request) {
  if (request.worker >= all_.size() || all_[request.worker].incarnation == 0) {
    throw InvalidArgument("worker " + std::to_string(request.worker) + " is unknown to shard " +
                          std::to_string(shard_));
  }
  Worker& worker = all_[request.worker];
  if (worker.incarnation != request.incarnation) throw_replaced(request);
  return worker;
}

ShardWorkers::Arrival ShardWorkers::greet(const PsRequest& request, const PsHello& greeting,
                                          std::uint32_t applied_clock) {
  const bool is_elastic = greeting.workers == 0;
  const std::uint32_t workers = is_elastic ? kMaxWorkers : greeting.workers;
  if (request.incarnation == 0) {
    throw InvalidArgument("worker " + std::to_string(request.worker) + " of " + std::to_string(workers) +
                          " has no incarnation");
  }
  if (workers > kMaxWorkers || request.worker >= workers) {
    throw InvalidArgument("there is no worker " + std::to_string(request.worker) + ": the job has " +
                          std::to_string(workers) + " workers");
  }
  const Worker known = request.worker < all_.size() ? all_[request.worker] : Worker{};
  if (request.incarnation < known.incarnation) throw_replaced(request);
  if (is_elastic) {
    // Nobody waits for those that have not come, or are lost already.
    if (request.worker >= all_.size()) all_.resize(request.worker + 1, Worker{.left = true});
  } else if (request.incarnation > known.incarnation && all_.size() != workers) {
    all_.resize(workers);
  }
  Worker& worker = all_[request.worker];
  const bool is_known = request.incarnation == known.incarnation;
  if (is_known && worker.forgotten) {  // it was busy for long, and its connection had broken meanwhile
    worker.left = worker.forgotten = false;
    worker.clock = std::max(worker.clock, applied_clock);
  }
  if (!is_known) {
    const bool is_first = known.incarnation == 0;
    worker.left = true;  // whoever comes instead of another one begins where the slowest is
    const std::uint32_t clock = is_first && applied_clock == 0 ? 0 : min_clock(applied_clock);
    worker = {.incarnation = request.incarnation, .applied = 0, .clock = clock, .is_elastic = is_elastic};
  }
  return {.worker = worker, .is_known = is_known};
}

bool ShardWorkers::forget(std::uint32_t worker) {
  if (worker >= all_.size()) return false;
  all_[worker].left = all_[worker].forgotten = true;
  return true;
}

void ShardWorkers::refuse(const PsRequest& request, std::span<const std::byte> why) {
  if (request.worker >= all_.size()) return;
  Worker& worker = all_[request.worker];
  if (worker.incarnation != request.incarnation || request.sequence <= worker.applied) return;
  worker.applied = request.sequence;
  worker.refusals.push_back(
      {.sequence = request.sequence, .why = {reinterpret_cast<const char*>(why.data()), why.size()}});
  if (worker.refusals.size() > kMaxPsUnanswered) worker.refusals.pop_front();
}

std::uint32_t ShardWorkers::min_clock(std::uint32_t applied_clock) const {
  std::uint32_t lowest = std::numeric_limits<std::uint32_t>::max();
  for (const Worker& worker : all_) {
    if (!worker.left) lowest = std::min(lowest, worker.clock);
  }
  return lowest == std::numeric_limits<std::uint32_t>::max() ? applied_clock : lowest;
}

int ShardWorkers::slowest() const {
  const auto first = std::ranges::min_element(all_, {}, [](const Worker& worker) {
    return worker.left ? std::uint64_t{1} << 32 : std::uint64_t{worker.clock};
  });
  return first == all_.end() || first->left ? -1 : static_cast<int>(first - all_.begin());
}

bool ShardWorkers::are_over() const {
  return !all_.empty() && !come_and_go() && std::ranges::all_of(all_, &Worker::left);
}

bool ShardWorkers::come_and_go() const { return std::ranges::any_of(all_, &Worker::is_elastic); }

std::vector<std::uint32_t> ShardWorkers::present() const {
  std::vector<std::uint32_t> present;
  for (std::uint32_t i = 0; i < all_.size(); ++i) {
    if (all_[i].incarnation != 0 && !all_[i].left) present.push_back(i);
  }
  return present;
}

void ShardWorkers::read(ByteReader& from) {
  std::vector<Worker> workers;
  from.get(workers);
  all_ = std::move(workers);
}

}  // namespace hvd
