// The keywords of the command line and their values: collectives, element types, reductions; and the collectives'
// properties. Pure.
#pragma once

#include <hvd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::bench {

enum class Collective { allreduce, allgather, broadcast, reducescatter, alltoall, barrier };

template <typename Value>
struct Word {
  const char* text;
  Value value;
};

inline constexpr Word<Collective> kCollectives[] = {
    {"allreduce", Collective::allreduce}, {"allgather", Collective::allgather},
    {"broadcast", Collective::broadcast}, {"reducescatter", Collective::reducescatter},
    {"alltoall", Collective::alltoall},   {"barrier", Collective::barrier},
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
bool reduces(Collective collective);
// Whether each rank receives or contributes an equal part of the tensor.
bool divides(Collective collective);

// The factor from algbw to busbw, which is comparable to a link's bandwidth for any number of ranks: the share of the
// bytes that must leave or reach each rank, as defined by NCCL's tests (doc/PERFORMANCE.md there).
double busbw_factor(Collective collective, int ranks);

}  // namespace hvd::bench
