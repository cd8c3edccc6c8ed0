// An operation under way, held by Python. All functions are to be called with the GIL, which is dropped while waiting.
//
// Ownership: a Work owns its hvd_work and references to the Python objects whose memory the operation reads and writes.
// If Python drops a Work that is not done (an exception, a Ctrl-C, a forgotten handle), both are kept in a list until
// the operation has ended, so that no rank ever writes into freed memory.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "hvd.h"

namespace hvd::python {

// Drops the GIL for a scope. Cheaper than pybind11's, which also serves interpreters that call back.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

class Work {
 public:
  // Starts the operation. `owners`: any object that keeps the call's memory alive.
  Work(const hvd_call& call, pybind11::object owners);
  // Starts a message, by hvd_send or hvd_receive.
  using StartMessage = hvd_status (*)(const hvd_message* message, hvd_work** work);
  Work(StartMessage start, const hvd_message& message, pybind11::object owners);
  // Starts it and waits for its end, as wait() does; for calls that have outputs.
  static void run(const hvd_call& call, pybind11::object owners);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  bool poll() const;

  // True when done, false when the time was up before; throws what the operation ended with, or KeyboardInterrupt.
  // No timeout: waits without end.
  bool wait(std::optional<double> timeout_seconds);

  // For tensors on a GPU: returns when the operation is in a stream there, and has this stream go on only when it is
  // over. Throws as wait().
  void wait_on_stream(std::uintptr_t stream);

  // Where the tensors lie: HVD_CPU, or a GPU's ordinal.
  int device() const { return device_; }

  // Result i as a DLPack capsule that owns the memory; can be taken once.
  pybind11::capsule output(std::size_t i);

  std::vector<std::int64_t> received_splits() const;
  int last_joined() const;
  // Of a receive: the rank of the job that the message came from.
  int source() const;

 private:
  Work(hvd_work* work, const hvd_call& call, pybind11::object owners)
      : work_(work), device_(device_of(call)), owners_(std::move(owners)) {}

  static int device_of(const hvd_call& call) { return call.count > 0 ? call.inputs->device : int{HVD_CPU}; }
  bool wait_in_slices(std::optional<double> timeout_seconds,
                      const std::function<hvd_status(std::int64_t timeout_us)>& wait_for);

  hvd_work* work_ = nullptr;
  const int device_;
  pybind11::object owners_;
};

// Releases dropped works that have ended since. Called at each submission and after shutdown.
void release_finished_works();

}  // namespace hvd::python
