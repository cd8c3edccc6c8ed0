// Applies pushed gradients to rows. A row is its values, and behind them the state that the optimizer needs.
//
// Every element is computed by itself, in float32 and in a fixed order, fused multiply-adds where the formula below has
// them: the same bits with every instruction set, and for SGD those of torch.optim.SGD on a CPU with such instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parameters/table_spec.h"

namespace hvd {

// Values of state behind the `width` values of a row.
std::size_t state_size(const OptimizerSpec& spec, std::size_t width);

// Fills a new row, state included.
void initialize_row(const TableSpec& spec, std::uint64_t key, float* row);

// Changes a row by a gradient of `width` values; not for custom updates.
void update_row(const OptimizerSpec& spec, float* row, const float* gradient, std::size_t width);

// sum[i] += values[i]
void add_values(float* sum, const float* values, std::size_t count);

}  // namespace hvd
