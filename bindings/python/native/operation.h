// OperationSpec: what an operation is, converted from Python once. Work: a Python object's reference to an operation
// that was submitted. All functions require the GIL, and release it while they wait.
//
// Ownership: a Work owns its hvd_work and references to the Python objects whose memory the operation accesses. If
// Python drops a Work that is not done (an exception, a Ctrl-C, a forgotten handle), both are kept in a list until the
// operation has ended, so that hvd never writes into freed memory.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hvd.h"

namespace hvd::python {

using Address = std::uintptr_t;
using Shape = std::vector<std::int64_t>;
// DLPack's code and bits for elements that the runtime moves as others; without it those of the runtime's type.
using ElementName = std::optional<std::pair<int, int>>;

// All of a call but the tensors' addresses and the stream. Immutable: any number of operations, on any threads, may be
// calls of it.
class OperationSpec {
 public:
  // `tensors`: shape and dtype of each. `splits`: alltoall alone. `device`: HVD_CPU, or the GPU that holds the tensors.
  // `output_rows`: the outputs' first dimensions, where they are not those of the tensors.
  OperationSpec(int collective, std::optional<std::string> name, int process_set,
                std::vector<std::pair<Shape, int>> tensors, int op, int root, double prescale, double postscale,
                std::optional<std::vector<std::int64_t>> splits, int device,
                const std::optional<std::vector<std::int64_t>>& output_rows);
  OperationSpec(const OperationSpec&) = delete;
  OperationSpec& operator=(const OperationSpec&) = delete;

  // The call on tensors at these addresses, one for each of the spec's; None as `outputs` leaves the results with the
  // runtime. The call refers to the spec and to `tensors`, which this fills.
  hvd_call call_on(std::vector<hvd_tensor>& tensors, pybind11::handle inputs, pybind11::handle outputs,
                   Address stream) const;

  int device() const { return device_; }

 private:
  const std::optional<std::string> name_;
  const std::vector<std::pair<Shape, int>> tensors_;
  std::vector<Shape> output_shapes_;  // empty: those of the tensors
  const std::optional<std::vector<std::int64_t>> splits_;
  const int device_;
  hvd_call call_ = HVD_CALL_INIT;
};

class Work {
 public:
  // Starts an operation; see call_on(). `owners`: any object that keeps the tensors' memory alive.
  Work(const OperationSpec& spec, pybind11::handle inputs, pybind11::handle outputs, pybind11::object owners,
       Address stream);
  // Starts a message, with hvd_send or hvd_receive.
  using StartMessage = hvd_status (*)(const hvd_message* message, hvd_work** work);
  Work(StartMessage start_message, const hvd_message& message, pybind11::object owners);
  // Starts an operation that has outputs, and waits for it, like wait(); on a GPU like wait_on_stream(stream). The hot
  // path of synchronous calls: creates no Python object for the operation.
  static void run(const OperationSpec& spec, pybind11::handle inputs, pybind11::handle outputs, pybind11::object owners,
                  Address stream);
  // Starts operations that have outputs, on the CPU, all at once, and waits until all have ended. Each call is a tuple
  // of run()'s arguments. Throws only if a call is wrong; each Work has its own outcome.
  static std::vector<std::unique_ptr<Work>> run_all(const pybind11::sequence& calls);
  // Checks an operation that has outputs and that start() starts, any number of times: hvd_prepare().
  static std::unique_ptr<Work> prepare(const OperationSpec& spec, pybind11::handle inputs, pybind11::handle outputs,
                                       pybind11::object owners, Address stream);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Of a prepared operation: starts it, and returns at once or waits like wait().
  void start();
  void start_and_wait();

  bool poll() const;

  // Returns true if the operation has ended, false after the timeout; throws its error, or KeyboardInterrupt. Without a
  // timeout, waits without limit.
  bool wait(std::optional<double> timeout_seconds);

  // For tensors on a GPU: returns once the operation is enqueued, and makes `stream` wait for it. Throws like wait().
  void wait_on_stream(Address stream);

  // HVD_CPU, or the ordinal of the GPU that holds the tensors.
  int device() const { return device_; }

  // Result i as a DLPack capsule that owns the memory; can be taken once. Only the first `dimensions` of its shape are
  // the array's, where it is moved as elements of another type.
  pybind11::capsule output(std::size_t i, ElementName type, std::optional<int> dimensions);

  std::vector<std::int64_t> received_splits() const;
  int last_joined() const;
  // For a receive: the rank of the job that sent the message.
  int source() const;

 private:
  Work(hvd_work* work, int device, pybind11::object owners)
      : work_(work), device_(device), owners_(std::move(owners)) {}
  // Returns when the operation has ended, with whatever outcome; throws KeyboardInterrupt.
  void wait_until_over() const;
  bool wait_in_slices(std::optional<double> timeout_seconds,
                      const std::function<hvd_status(std::int64_t timeout_us)>& wait_for);

  hvd_work* work_ = nullptr;
  const int device_;
  pybind11::object owners_;
};

// Releases dropped works that have ended. Called at each submission and after shutdown.
void release_finished_works();

// Uninitialised memory as a DLPack capsule: of the shared arena, and ordinary memory (128-byte aligned).
pybind11::capsule empty(const Shape& shape, int dtype, std::size_t bytes);
pybind11::capsule allocate(const Shape& shape, int dtype, std::size_t bytes, ElementName type);

}  // namespace hvd::python
