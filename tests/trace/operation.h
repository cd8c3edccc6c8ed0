// An operation of a random program as one rank submits it, and the random choice of operations.
//
// All ranks draw the same numbers: values that differ between ranks (rows, splits) are drawn for all, and each rank
// uses its own.
#pragma once

#include <cstdint>
#include <hvd.hpp>
#include <string>
#include <vector>

#include "tests/trace/random.h"

namespace hvd::trace {

// A process set as this rank sees it.
struct Set {
  int id = HVD_GLOBAL_PROCESS_SET;
  std::vector<int> ranks{};
  int position = 0;  // of this rank; -1: it is not in the set

  int size() const { return static_cast<int>(ranks.size()); }
};

struct TensorSpec {
  int dtype = HVD_FLOAT32;
  std::vector<std::int64_t> shape{};

  std::int64_t elements() const;
  std::size_t bytes() const;
};

struct Operation {
  std::string name{};  // empty: the runtime makes one up
  int collective = HVD_ALLREDUCE;
  int process_set = HVD_GLOBAL_PROCESS_SET;
  std::vector<TensorSpec> tensors{};
  int reduce_op = HVD_SUM;
  int root = 0;  // a global rank
  double prescale = 1.0;
  double postscale = 1.0;
  int priority = 0;
  std::vector<std::int64_t> splits{};
  bool in_place = true;
  bool in_arena = false;
  std::uint64_t key = 0;  // of the values
  hvd_status expected = HVD_OK;

  bool reduces() const { return collective == HVD_ALLREDUCE || collective == HVD_REDUCESCATTER; }
};

const char* dtype_name(int dtype);
std::size_t dtype_size(int dtype);
const char* collective_name(int collective);

// One line: what is asked for, without names and values.
std::string describe(const Operation& operation);

// Any operation that every rank of the set may ask for.
Operation draw_operation(Random& random, const Set& set, const std::string& name);
Operation draw_reduction(Random& random, const Set& set, const std::string& name);

// The rows that each rank sends to each in an alltoall.
std::vector<std::vector<std::int64_t>> draw_splits(Random& random, const Set& set);

void give_splits(Operation& alltoall, const std::vector<std::int64_t>& splits);

}  // namespace hvd::trace
