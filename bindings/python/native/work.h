// Work: a Python object's reference to an operation. All functions require the GIL, and release it while they wait.
//
// Ownership: a Work owns its hvd_work and references to the Python objects whose memory the operation accesses. If
// Python drops a Work that is not done (an exception, a Ctrl-C, a forgotten handle), both are kept in a list until the
// operation has ended, so that hvd never writes into freed memory.
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

// Releases the GIL for a scope. Cheaper than pybind11's, which also supports interpreters that call back.
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
  // Starts a message, with hvd_send or hvd_receive.
  using StartMessage = hvd_status (*)(const hvd_message* message, hvd_work** work);
  Work(StartMessage start, const hvd_message& message, pybind11::object owners);
  // Starts an operation and waits for it, like wait(); for calls that have outputs.
  static void run(const hvd_call& call, pybind11::object owners);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  bool poll() const;

  // Returns true if the operation has ended, false after the timeout; throws its error, or KeyboardInterrupt. Without a
  // timeout, waits without limit.
  bool wait(std::optional<double> timeout_seconds);

  // For tensors on a GPU: returns once the operation is enqueued, and makes `stream` wait for it. Throws like wait().
  void wait_on_stream(std::uintptr_t stream);

  // HVD_CPU, or the ordinal of the GPU that holds the tensors.
  int device() const { return device_; }

  // Result i as a DLPack capsule that owns the memory; can be taken once.
  pybind11::capsule output(std::size_t i);

  std::vector<std::int64_t> received_splits() const;
  int last_joined() const;
  // For a receive: the rank of the job that sent the message.
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

// Releases dropped works that have ended. Called at each submission and after shutdown.
void release_finished_works();

}  // namespace hvd::python
