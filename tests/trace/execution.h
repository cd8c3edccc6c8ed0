// One operation in progress: its memory, its handle and its outcome.
#pragma once

#include <cstdint>
#include <hvd.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/trace/operation.h"

namespace hvd::trace {

// How a call or an operation ended.
struct Outcome {
  hvd_status status = HVD_OK;
  std::string text{};      // of the error; what differs from run to run is replaced
  std::uint64_t hash = 0;  // of the outputs' bits, shapes and received splits
  int last_joined = -1;    // join

  // The outcome of the C interface's last call on this thread.
  static Outcome of(hvd_status status);
};

// FNV-1a, 64 bits.
class Hash {
 public:
  void add(const void* data, std::size_t bytes);
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

class Execution {
 public:
  Execution(Operation operation, int rank);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Operation& operation() const { return operation_; }

  // Starts the operation; what the caller's arguments were told is kept for finish().
  void submit();
  // Submits and waits in one call.
  void run();
  // How a wait of no time ends.
  Outcome poll() const;
  // Waits, and reads the results.
  Outcome finish();

 private:
  using Memory = std::unique_ptr<void, void (*)(void*)>;

  Memory allocate(std::size_t bytes) const;
  hvd_call call();
  void hash_outputs(Outcome& outcome) const;
  void hash_tensor(Hash& hash, const hvd_tensor& tensor) const;

  Operation operation_;
  std::vector<Memory> memory_;
  std::vector<hvd_tensor> inputs_, outputs_;  // no outputs: the runtime allocates them
  hvd_work* work_ = nullptr;
  Outcome started_;
};

}  // namespace hvd::trace
