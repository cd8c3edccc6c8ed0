// What a row of the table is about: some tensors, by their numbers of elements, in the order in which they are
// submitted. Pure. Whatever the user has written wrong is a std::invalid_argument.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::bench {

using TensorSet = std::vector<std::int64_t>;

// "8", "64K", "64KB", "64KiB", "1G": powers of 1024.
std::uint64_t parse_size(const std::string& text);

// first, first * factor, ... up to last.
std::vector<std::uint64_t> size_range(std::uint64_t first, std::uint64_t last, std::uint64_t factor);

// "resnet50", or "100x64MB": 100 tensors of 64 MB in all.
TensorSet parse_tensor_set(const std::string& text, std::size_t element_size);

// The gradients of ResNet-50 for 1000 classes, the last layer's first, as backward finishes them.
TensorSet resnet50();

// Every tensor with a multiple of `parts` elements, and with some: rounded down where that leaves any.
TensorSet divisible(TensorSet set, int parts);

}  // namespace hvd::bench
