// The context of an engine: its dependencies, which belong to the process set, and the state that its two runners
// share, which belongs to the thread that drives the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/config.h"
#include "core/control/negotiator.h"
#include "core/control/tree/control_channel.h"
#include "core/execution/executor.h"
#include "core/flight/flight_recorder.h"
#include "core/operation/operation_table.h"
#include "core/operation/pending_operations.h"

namespace hvd {

// What is passed to the engine, and outlives it.
struct EngineDependencies {
  const Topology& topology;
  const Config& config;
  const Log& log;
  AbortFlag& abort;
  ControlChannel& channel;
  OperationTable& names;
  Metrics& metrics;
  Timeline& timeline;
  FlightRecorder& flight;
  const ProcessSet& set;                                  // all ranks of the topology
  std::function<void(const Status& reason)> on_end = {};  // when the run ends, on the driving thread; must be quick
};

// Numbers the operations of a process set in the flight recorder. Each counter is written by one thread at a time:
// by the one that submits (Communicator), and by the one that drives the engine.
class OperationRecorder {
 public:
  explicit OperationRecorder(FlightRecorder& flight) : flight_(flight) {}

  void submitted(Operation& operation);

  // An operation that is performed directly, and counts once performed_directly() is called.
  FlightEntry performing(const FlightWords& described) {
    const std::uint64_t before = performed_directly_.load(std::memory_order_relaxed);
    return flight_.performing(described, before + submitted_.load(std::memory_order_relaxed) + 1);
  }
  void performed_directly() {
    performed_directly_.store(performed_directly_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 private:
  FlightRecorder& flight_;
  std::atomic<std::uint64_t> submitted_{0}, performed_directly_{0};
};

struct EngineContext {
  const EngineDependencies dependencies;
  std::unique_ptr<Executor> executor;
  Negotiator negotiator;
  PendingOperations pending;
  OperationRecorder recorder;
  Knobs knobs;          // in use now
  bool leaves = false;  // this rank has announced its leave to the coordinator
  DrivingThread driving_thread = DrivingThread::engine;

  // Makes an operation pending; then it is announced, or entered into the locked schedule.
  Operation& insert(EngineReference operation);

  // Sends operations to the coordinator, and whether this rank leaves.
  void announce(const std::vector<const OperationSpec*>& specs);
};

}  // namespace hvd
