// One operation of this rank, from submit to its end: what is asked for, where the tensors lie, and what becomes of it.
//
// Two hold it, the caller (through Handle) and the engine (through the SubmissionQueue), and each lets go when it is
// through. NamedSubmissions makes it and keeps it for the next operation of the same name: programs repeat themselves,
// and a repetition then costs no allocation. It lies on the heap, and deletes itself when none of the three has it any
// more. The memory of the tensors belongs to the caller and stays valid until the work is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/collective/work.h"
#include "core/device/device_event.h"
#include "core/flight/flight_entry.h"
#include "core/submission/request.h"
#include "core/tensor/tensor_view.h"

namespace hvd {

struct TensorMemory {
  void* input = nullptr;
  void* output = nullptr;  // null: there is nothing to write, or the runtime is to allocate it
};

class Submission {
 public:
  enum class Holder { engine, caller };

  explicit Submission(std::shared_ptr<Metrics> metrics) : metrics_(std::move(metrics)) {}
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  // Set by who submits.
  Request request;
  std::size_t hash = 0;  // of request.name
  std::vector<TensorMemory> tensors;
  bool allocates_outputs = false;
  int device = kCpuDevice;                   // or this rank's accelerator, where the tensors lie
  std::shared_ptr<const DeviceEvent> ready;  // there: when they may be touched

  // For the flight recorder: what `request` is, and where this one is recorded.
  FlightWords described{};
  FlightEntry flight;

  // NamedSubmissions': taken since idle names were last forgotten.
  bool used_lately = false;

  // The engine's.
  std::size_t tensors_left = 0;     // of the group, that no bucket has finished yet
  std::uint64_t scheduled_in = 0;   // the locked schedule that knows this very request, as
  std::uint32_t schedule_slot = 0;  // the operation in this slot

  Work work;

  // The caller's: is it done, wait until it is. Any thread.
  bool poll() const { return work.over(); }
  bool wait(Deadline deadline) {
    if (work.over()) return true;
    const TimePoint started = Clock::now();
    const bool done = work.wait_until_over(deadline);
    metrics_->exposed_time.add(Clock::now() - started);
    return done;
  }

  // Only until it is in a stream of its device, if it has one: then that stream and others are the caller's to order.
  bool wait_until_enqueued(Deadline deadline) { return work.wait(deadline); }

  // From here on two hold it, and its name is taken. Of one that is not in use; submitters take turns.
  void begin() {
    tensors_left = request.tensors.size();
    state_.store(kKept | kInUse | kEngineHolds | kCallerHolds | kNameTaken, std::memory_order_relaxed);
  }
  bool in_use() const { return (state_.load(std::memory_order_acquire) & kInUse) != 0; }

  // The name is taken until the operation has ended: the engine says so before anybody can see the end.
  bool name_taken() const { return (state_.load(std::memory_order_acquire) & kNameTaken) != 0; }
  void free_name() { state_.fetch_and(~kNameTaken, std::memory_order_release); }

  // Each once. Who is the last leaves it as new; results go with it.
  void release(Holder holder) {
    const std::uint32_t before = state_.fetch_and(~released_by(holder), std::memory_order_acq_rel);
    if ((before & (kEngineHolds | kCallerHolds)) != holds_bit(holder)) return;
    work.reset();
    ready.reset();
    if (request.tensors.size() != 1) free_tensors();
    if ((state_.fetch_and(~kInUse, std::memory_order_acq_rel) & kKept) == 0) delete this;
  }
  // Is not submitted any more.
  void forget() {
    if ((state_.fetch_and(~kKept, std::memory_order_acq_rel) & kInUse) == 0) delete this;
  }

  // Chains of tables that it is in: submission_index.h.
  Submission* next_named = nullptr;
  Submission* next_pending = nullptr;

 private:
  static constexpr std::uint32_t kEngineHolds = 1;  // until its release()
  static constexpr std::uint32_t kCallerHolds = 2;  // until its release()
  static constexpr std::uint32_t kNameTaken = 4;    // until the operation has ended, or the engine releases it
  static constexpr std::uint32_t kInUse = 8;        // from begin() until the last release() has left it as new
  static constexpr std::uint32_t kKept = 16;        // by NamedSubmissions, until forget()

  static constexpr std::uint32_t holds_bit(Holder holder) {
    return holder == Holder::engine ? kEngineHolds : kCallerHolds;
  }
  static constexpr std::uint32_t released_by(Holder holder) {
    return holder == Holder::engine ? kEngineHolds | kNameTaken : kCallerHolds;
  }

  // A group may be large, and is not recognised when it comes again.
  void free_tensors() {
    std::vector<TensorSpec>().swap(request.tensors);
    std::vector<std::int64_t>().swap(request.splits);
    std::vector<TensorMemory>().swap(tensors);
  }

  const std::shared_ptr<Metrics> metrics_;  // the runtime may be gone before the caller lets go
  std::atomic<std::uint32_t> state_{kKept};
};

template <Submission::Holder kHolder>
struct Releaser {
  void operator()(Submission* submission) const { submission->release(kHolder); }
};
using EnginesSubmission = std::unique_ptr<Submission, Releaser<Submission::Holder::engine>>;
using CallersSubmission = std::unique_ptr<Submission, Releaser<Submission::Holder::caller>>;

}  // namespace hvd
