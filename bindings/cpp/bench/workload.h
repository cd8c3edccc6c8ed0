// The tensors of one row and the operations on them, as a program of a user would have them: called from one thread,
// owns the tensors.
#pragma once

#include <cstdint>
#include <memory>

#include "bindings/cpp/bench/command_line.h"

namespace hvd::bench {

class Workload {
 public:
  Workload() = default;
  virtual ~Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // How often run() may be called after one rewrite().
  virtual int max_calls() const = 0;

  // Fresh inputs, different in each round, and outputs that no collective can have left.
  virtual void rewrite(int round) = 0;
  // Submits all operations and waits for them.
  virtual void run() = 0;
  // How many elements of this rank's results are not those of `calls` calls of run() after rewrite(round).
  virtual std::int64_t count_errors(int round, int calls) = 0;
};

// For a row that fits the ranks. Needs an initialised runtime.
std::unique_ptr<Workload> make_workload(const Settings& settings, const TensorSet& row);

}  // namespace hvd::bench
