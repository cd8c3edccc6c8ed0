// The command line of hvd-bench. Pure: reads no file and no environment.
#pragma once

#include <hvd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/tensor_set.h"
#include "tools/bench/vocabulary.h"

namespace hvd::bench {

struct Settings {
  std::optional<int> ranks;  // -np

  Collective collective = Collective::allreduce;
  hvd_dtype dtype = HVD_FLOAT32;
  std::optional<ReduceOp> op;  // if the collective reduces
  bool in_place = false;
  std::vector<TensorSet> rows;  // as requested; a barrier has one row without tensors
  bool grouped = false;         // all tensors of a row as one grouped operation
  bool arena = false;

  double seconds = 0.5;  // per row, approximately
  int warmup = 2;        // rounds

  std::string json;  // empty: no file

  // Set by --help and --version: the text to print instead of measuring.
  std::optional<std::string> information;
};

// Parses the arguments, without the program's name. Throws std::invalid_argument with a one-line message for the user.
Settings parse_command_line(const std::vector<std::string>& arguments);

}  // namespace hvd::bench
