// The tensors of one row and the operations on them, as in a user's program. Called from one thread; owns the tensors.
#pragma once

#include <cstdint>
#include <memory>

#include "tools/bench/command_line.h"

namespace hvd::bench {

class Workload {
 public:
  Workload() = default;
  virtual ~Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // The maximum number of calls of run() after one rewrite().
  virtual int max_calls() const = 0;

  // Writes new inputs, different in each round, and outputs that no collective can have produced.
  virtual void rewrite(int round) = 0;
  // Submits all operations and waits for them.
  virtual void run() = 0;
  // Counts the elements of this rank's results that differ from those of `calls` calls of run() after rewrite(round).
  virtual std::int64_t count_errors(int round, int calls) = 0;
};

// `row` must be divisible by the number of ranks if the collective requires it. Needs an initialised runtime.
std::unique_ptr<Workload> make_workload(const Settings& settings, const TensorSet& row);

}  // namespace hvd::bench
