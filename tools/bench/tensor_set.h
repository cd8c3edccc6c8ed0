// The tensors of a row of the table: their numbers of elements, in the order of submission. Pure. Throws
// std::invalid_argument for invalid input of the user.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::bench {

using TensorSet = std::vector<std::int64_t>;

// Parses "8", "64K", "64KB", "64KiB", "1G": units are powers of 1024.
std::uint64_t parse_size(const std::string& text);

// Returns first, first * factor, ... up to last.
std::vector<std::uint64_t> size_range(std::uint64_t first, std::uint64_t last, std::uint64_t factor);

// Parses "resnet50", or "100x64MB": 100 tensors of 64 MB in total.
TensorSet parse_tensor_set(const std::string& text, std::size_t element_size);

// The gradients of ResNet-50 for 1000 classes, last layer first, in the order in which backward produces them.
TensorSet resnet50();

// Rounds each tensor down to a multiple of `parts` elements, but up to `parts` if nothing would remain.
TensorSet divisible(TensorSet set, int parts);

}  // namespace hvd::bench
