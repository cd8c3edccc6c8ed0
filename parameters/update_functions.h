// Updates that programs give by name, for optimizers that hvd does not have (UpdateRule::custom). Every process that
// serves registers the same ones, before it serves.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace hvd {

// A gradient for each of `count` rows: `rows` and `gradients` have `columns` values for each, `state` has
// `state_columns`, which are 0 in a new row; row by row.
struct RowsUpdate {
  float* rows = nullptr;
  float* state = nullptr;
  const float* gradients = nullptr;
  std::size_t count = 0;
  std::size_t columns = 0;
  std::size_t state_columns = 0;
  float learning_rate = 0;
};

// Changes rows and state in place. False: it cannot, and what it was given is forgotten. By one thread of each server.
using UpdateFunction = std::function<bool(const RowsUpdate&)>;

// Any thread. One of the same name is replaced, for tables that are opened from now on.
void register_update(const std::string& name, UpdateFunction function);
// Throws InvalidArgument if there is none.
UpdateFunction find_update(const std::string& name);

}  // namespace hvd
