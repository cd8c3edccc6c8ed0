// The command line of hvd-bench. Pure: reads no file and no environment.
#pragma once

#include <hvd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cpp/bench/tensor_set.h"
#include "bindings/cpp/bench/vocabulary.h"

namespace hvd::bench {

struct Settings {
  std::optional<int> ranks;  // of -np

  Collective collective = Collective::allreduce;
  hvd_dtype dtype = HVD_FLOAT32;
  std::optional<ReduceOp> op;  // where the collective reduces
  bool in_place = false;
  std::vector<TensorSet> rows;  // as asked for; a barrier has one row without tensors
  bool grouped = false;         // all tensors of a row as one operation
  bool arena = false;

  double seconds = 0.5;  // for each row, about
  int warmup = 2;        // rounds

  std::string json;  // empty: no file

  // Set by --help and --version: to be printed, and that is all.
  std::optional<std::string> information;
};

// Arguments without the program's own name. Throws std::invalid_argument, with one line for whoever typed them.
Settings parse_command_line(const std::vector<std::string>& arguments);

}  // namespace hvd::bench
