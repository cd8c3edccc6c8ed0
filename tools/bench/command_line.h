// The command line of hvd-bench: its keywords, the sets of tensors, and the settings that it gives. Pure: reads no file
// and no environment.
#pragma once

#include <cstdint>
#include <hvd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::bench {

// A keyword of the command line and its value.
template <typename Value>
struct Word {
  const char* text;
  Value value;
};

inline constexpr Word<hvd_collective> kCollectives[] = {
    {"allreduce", HVD_ALLREDUCE},         {"allgather", HVD_ALLGATHER}, {"broadcast", HVD_BROADCAST},
    {"reducescatter", HVD_REDUCESCATTER}, {"alltoall", HVD_ALLTOALL},   {"barrier", HVD_BARRIER},
};

inline constexpr Word<hvd_dtype> kDTypes[] = {
    {"uint8", HVD_UINT8},     {"int8", HVD_INT8},       {"int16", HVD_INT16},       {"int32", HVD_INT32},
    {"int64", HVD_INT64},     {"float16", HVD_FLOAT16}, {"bfloat16", HVD_BFLOAT16}, {"float32", HVD_FLOAT32},
    {"float64", HVD_FLOAT64}, {"bool", HVD_BOOL},
};

inline constexpr Word<ReduceOp> kReduceOps[] = {
    {"sum", sum}, {"average", average}, {"min", min}, {"max", max}, {"product", product},
};

template <typename Value, std::size_t kSize>
const char* text_of(const Word<Value> (&words)[kSize], Value value) {
  for (const auto& word : words) {
    if (word.value == value) return word.text;
  }
  return "none";
}

template <typename Value, std::size_t kSize>
std::optional<Value> find(const Word<Value> (&words)[kSize], std::string_view text) {
  for (const auto& word : words) {
    if (word.text == text) return word.value;
  }
  return std::nullopt;
}

template <typename Value, std::size_t kSize>
std::vector<std::string> all_texts(const Word<Value> (&words)[kSize]) {
  std::vector<std::string> result;
  for (const auto& word : words) result.emplace_back(word.text);
  return result;
}

std::size_t size_of(hvd_dtype dtype);

// Whether the collective reduces.
bool reduces(hvd_collective collective);
// Whether each rank receives or contributes an equal part of the tensor.
bool divides(hvd_collective collective);

// The factor from algbw to busbw, which is comparable to a link's bandwidth for any number of ranks: the share of the
// bytes that must leave or reach each rank, as defined by NCCL's tests (doc/PERFORMANCE.md there).
double busbw_factor(hvd_collective collective, int ranks);

// The tensors of a row of the table: their numbers of elements, in the order of submission. What parses them throws
// std::invalid_argument for invalid input of the user.
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

struct Settings {
  std::optional<int> ranks;  // -np

  hvd_collective collective = HVD_ALLREDUCE;
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
