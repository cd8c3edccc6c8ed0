#include "core/operation/operation.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/base/futex.h"
#include "core/operation/call.h"

namespace hvd {

// ---- Completion

bool Completion::wait(Deadline deadline) {
  set_awaited();
  std::uint32_t state = state_.load(std::memory_order_acquire);
  while (state != kDone) {
    if (state == kOpen && !state_.compare_exchange_weak(state, kSleptOn, std::memory_order_acquire)) continue;
    if (Clock::now() >= deadline) return false;
    futex_wait(state_, state == kOpen ? kSleptOn : state, deadline, FutexScope::process);
    state = state_.load(std::memory_order_acquire);
  }
  return true;
}

void Completion::call_when_done(void (*callback)(void*), void* context) {
  callback_ = callback;
  callback_context_ = context;
  std::uint32_t state = state_.load(std::memory_order_acquire);
  while (state != kDone) {
    // Also from kSleptOn, the state left by a thread whose deadline has passed.
    if (state_.compare_exchange_weak(state, kToCall, std::memory_order_acq_rel)) return;
  }
  callback(context);
}

bool Completion::complete(const Status& status) {
  status_ = status;
  const std::uint32_t before = state_.exchange(kDone, std::memory_order_acq_rel);
  is_to_call_ = before == kToCall;
  return before != kOpen;
}

void Completion::wake() {
  futex_wake_all(state_, FutexScope::process);
  if (is_to_call_) callback_(callback_context_);
}

void Completion::reset() {
  received_splits.clear();
  last_joined = -1;
  source = -1;
  on_device.reset();
  is_to_call_ = false;
  status_ = Status();
  awaited_.store(false, std::memory_order_relaxed);
  state_.store(kOpen, std::memory_order_relaxed);
}

// ---- Operation

bool Operation::wait(Deadline deadline) {
  if (completion.over()) return true;
  const TimePoint started = Clock::now();
  const bool done = completion.wait_until_over(deadline);
  metrics_->exposed_time.add(Clock::now() - started);
  return done;
}

void Operation::set_call(OperationSpec new_spec, OperationMemory new_memory) {
  spec = std::move(new_spec);
  repeatable = is_repeatable(spec);
  memory = std::move(new_memory);
  described = describe(spec);
  scheduled = {};
}

bool Operation::end(const Status& status) {
  flight.ended(status.code());
  return end_recorded(status);
}

bool Operation::end_recorded(const Status& status) {
  state_.fetch_and(~State::kNameTaken, std::memory_order_release);
  return completion.complete(status);
}

void Operation::release(Holder holder) {
  const std::uint32_t holds = holder == Holder::engine ? State::kEngineHolds : State::kCallerHolds;
  const std::uint32_t released =
      holder == Holder::engine ? State::kEngineHolds | State::kNameTaken : State::kCallerHolds;
  const std::uint32_t before = state_.fetch_and(~released, std::memory_order_acq_rel);
  if ((before & (State::kEngineHolds | State::kCallerHolds)) != holds) return;
  completion.reset();
  memory.outputs.clear();
  memory.ready.reset();
  prepared.reset();
  if (spec.tensors.size() != 1) {  // a grouped operation may be large, and is not recognised when it is repeated
    std::vector<TensorSpec>().swap(spec.tensors);
    std::vector<std::int64_t>().swap(spec.splits);
    std::vector<TensorMemory>().swap(memory.tensors);
  }
  if ((state_.fetch_and(~State::kInUse, std::memory_order_acq_rel) & State::kKept) == 0) delete this;
}

OperationReferences make_message_operation(const std::shared_ptr<Metrics>& metrics) {
  auto* const operation = new Operation(metrics);
  OperationReferences references(*operation);
  operation->forget();
  return references;
}

FlightWords describe(const OperationSpec& spec) {
  constexpr std::size_t kMany = std::numeric_limits<std::uint8_t>::max();
  FlightOperation operation;
  operation.process_set = spec.process_set;
  operation.collective = static_cast<std::uint8_t>(spec.collective);
  operation.tensors = static_cast<std::uint8_t>(std::min(spec.tensors.size(), kMany));
  operation.bytes = bytes_of(spec);
  if (!spec.tensors.empty()) {
    const TensorSpec& tensor = spec.tensors.front();
    operation.dtype = static_cast<std::uint8_t>(tensor.dtype);
    operation.dimensions = static_cast<std::uint8_t>(std::min(tensor.shape.size(), kMany));
    for (std::size_t i = 0; i < std::min(tensor.shape.size(), operation.shape.size()); ++i) {
      constexpr std::int64_t kMax = std::numeric_limits<std::uint32_t>::max();
      operation.shape[i] = static_cast<std::uint32_t>(std::min(tensor.shape[i], kMax));
    }
  }
  put_short_name(spec.name, operation.name.data(), operation.name.size());
  return std::bit_cast<FlightWords>(operation);
}

}  // namespace hvd
