// This rank's part of one operation, from submit to its end: the request, the tensors' memory, and the work.
//
// Reference counted by the caller (through Handle), the engine (through the SubmissionQueue) and NamedSubmissions,
// which makes it and keeps it for the next operation of the same name, so that a repetition costs no allocation; the
// last one deletes it. The memory of the tensors belongs to the caller and stays valid until the work is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/device/device_runtime.h"
#include "core/flight/flight_recorder.h"
#include "core/operation/request.h"
#include "core/operation/work.h"
#include "core/tensor/tensor.h"

namespace hvd {

struct TensorMemory {
  void* input = nullptr;
  void* output = nullptr;  // null: no output, or the runtime allocates it
};

class Submission {
 public:
  enum class Holder { engine, caller };

  explicit Submission(std::shared_ptr<Metrics> metrics) : metrics_(std::move(metrics)) {}
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  // Set before submission.
  Request request;
  std::size_t hash = 0;  // of request.name
  std::vector<TensorMemory> tensors;
  bool allocates_outputs = false;
  int device = kCpuDevice;                   // or the ordinal of this rank's accelerator that has the tensors
  std::shared_ptr<const DeviceEvent> ready;  // on a device: when they may be accessed

  // For the flight recorder: the description of `request`, and the record of this operation.
  FlightWords described{};
  FlightEntry flight;

  // Owned by NamedSubmissions: taken since the last cleanup of idle names.
  bool used_lately = false;

  // Owned by the engine thread.
  std::size_t tensors_left = 0;     // of the grouped operation, that no bucket has finished yet
  std::uint64_t scheduled_in = 0;   // the locked schedule that has exactly this request, as
  std::uint32_t schedule_slot = 0;  // the operation in this slot

  Work work;

  // For the caller. Any thread.
  bool poll() const { return work.over(); }
  bool wait(Deadline deadline) {
    if (work.over()) return true;
    const TimePoint started = Clock::now();
    const bool done = work.wait_until_over(deadline);
    metrics_->exposed_time.add(Clock::now() - started);
    return done;
  }

  // Waits only until the operation is enqueued in a device's stream, if it has one; the caller orders streams from then
  // on.
  bool wait_until_enqueued(Deadline deadline) { return work.wait(deadline); }

  // From now on caller and engine hold a reference, and the name is taken. Requires !in_use(); submitters are
  // serialized.
  void begin() {
    tensors_left = request.tensors.size();
    state_.store(kKept | kInUse | kEngineHolds | kCallerHolds | kNameTaken, std::memory_order_relaxed);
  }
  bool in_use() const { return (state_.load(std::memory_order_acquire) & kInUse) != 0; }

  // The name is taken until the operation has ended: the engine frees it before the end becomes visible.
  bool name_taken() const { return (state_.load(std::memory_order_acquire) & kNameTaken) != 0; }
  void free_name() { state_.fetch_and(~kNameTaken, std::memory_order_release); }

  // Once for each holder. The last one resets the submission, including results.
  void release(Holder holder) {
    const std::uint32_t before = state_.fetch_and(~released_by(holder), std::memory_order_acq_rel);
    if ((before & (kEngineHolds | kCallerHolds)) != holds_bit(holder)) return;
    work.reset();
    ready.reset();
    if (request.tensors.size() != 1) free_tensors();
    if ((state_.fetch_and(~kInUse, std::memory_order_acq_rel) & kKept) == 0) delete this;
  }
  // NamedSubmissions drops its reference.
  void forget() {
    if ((state_.fetch_and(~kKept, std::memory_order_acq_rel) & kInUse) == 0) delete this;
  }

  // Links of the tables that contain it: submission_index.h.
  Submission* next_named = nullptr;
  Submission* next_pending = nullptr;

 private:
  static constexpr std::uint32_t kEngineHolds = 1;  // until its release()
  static constexpr std::uint32_t kCallerHolds = 2;  // until its release()
  static constexpr std::uint32_t kNameTaken = 4;    // until the operation has ended, or the engine releases it
  static constexpr std::uint32_t kInUse = 8;        // from begin() until the last release() has reset it
  static constexpr std::uint32_t kKept = 16;        // by NamedSubmissions, until forget()

  static constexpr std::uint32_t holds_bit(Holder holder) {
    return holder == Holder::engine ? kEngineHolds : kCallerHolds;
  }
  static constexpr std::uint32_t released_by(Holder holder) {
    return holder == Holder::engine ? kEngineHolds | kNameTaken : kCallerHolds;
  }

  // A grouped operation may be large, and is not recognised when it is repeated.
  void free_tensors() {
    std::vector<TensorSpec>().swap(request.tensors);
    std::vector<std::int64_t>().swap(request.splits);
    std::vector<TensorMemory>().swap(tensors);
  }

  const std::shared_ptr<Metrics> metrics_;  // the runtime may be destroyed before the caller's reference
  std::atomic<std::uint32_t> state_{kKept};
};

template <Submission::Holder kHolder>
struct Releaser {
  void operator()(Submission* submission) const { submission->release(kHolder); }
};
using EnginesSubmission = std::unique_ptr<Submission, Releaser<Submission::Holder::engine>>;
using CallersSubmission = std::unique_ptr<Submission, Releaser<Submission::Holder::caller>>;

}  // namespace hvd
