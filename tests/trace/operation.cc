#include "tests/trace/operation.h"

#include <algorithm>
#include <numeric>

namespace hvd::trace {

namespace {

struct DType {
  const char* name;
  std::size_t size;
};

// By hvd_dtype. The last three cannot be reduced.
constexpr DType kDTypes[] = {{"uint8", 1},   {"int8", 1},     {"int16", 2},   {"int32", 4},   {"int64", 8},
                             {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"bool", 1},
                             {"uint16", 2},  {"uint32", 4},   {"uint64", 8}};
constexpr int kReducible[] = {HVD_UINT8,    HVD_INT8,     HVD_INT16,   HVD_INT32,   HVD_INT64,
                              HVD_FLOAT16,  HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64, HVD_FLOAT16,
                              HVD_BFLOAT16, HVD_FLOAT32,  HVD_FLOAT32};
constexpr int kFloating[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64};
constexpr const char* kCollectives[] = {"allreduce",     "allgather", "broadcast", "alltoall",
                                        "reducescatter", "barrier",   "join"};
constexpr const char* kOps[] = {"average", "sum", "adasum", "min", "max", "product"};
constexpr double kFactors[] = {0.5, 1.0 / 3, 3.0, 1e-3};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t dimension : shape) text += (text.empty() ? "" : ",") + std::to_string(dimension);
  return "[" + text + "]";
}

// Most tensors are small; some have no elements, some fill several chunks.
std::vector<std::int64_t> draw_shape(Random& random, int least_dimensions) {
  if (random.one_in(24)) return {random.between(20'000, 90'000)};
  std::vector<std::int64_t> shape;
  const int dimensions = random.between(least_dimensions, 3);
  for (int i = 0; i < dimensions; ++i) shape.push_back(random.one_in(20) ? 0 : random.between(1, 17));
  return shape;
}

void draw_tensors(Random& random, Operation& operation, int least_dimensions, bool moves) {
  const int count = operation.collective == HVD_ALLTOALL || !random.one_in(4) ? 1 : random.between(2, 6);
  for (int i = 0; i < count; ++i) {
    const int dtype = moves ? random.below(static_cast<int>(std::size(kDTypes))) : random.pick(kReducible);
    operation.tensors.push_back({dtype, draw_shape(random, least_dimensions)});
  }
}

void draw_rows(Random& random, const Set& set, Operation& allgather) {
  for (TensorSpec& tensor : allgather.tensors) {
    for (int rank = 0; rank < set.size(); ++rank) {
      const int rows = random.between(0, 5);
      if (rank == set.position) tensor.shape.front() = rows;
    }
  }
}

Operation begin(Random& random, int collective, const Set& set, const std::string& name) {
  Operation operation{.name = name, .collective = collective, .process_set = set.id};
  operation.in_place = random.one_in(2);
  const int place = random.below(6);  // 0: all ranks have the tensors in the arena, 1: one has
  operation.in_arena = place == 0 || (place == 1 && set.position == 0);
  operation.priority = random.one_in(4) ? random.between(-2, 2) : 0;
  operation.key = random.next();
  return operation;
}

}  // namespace

std::int64_t TensorSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::size_t TensorSpec::bytes() const { return static_cast<std::size_t>(elements()) * dtype_size(dtype); }

// A type that does not exist, asked for on purpose, is -1.
const char* dtype_name(int dtype) { return dtype < 0 ? "unknown" : kDTypes[dtype].name; }
std::size_t dtype_size(int dtype) { return dtype < 0 ? 1 : kDTypes[dtype].size; }
const char* collective_name(int collective) { return kCollectives[collective]; }

std::string describe(const Operation& operation) {
  std::string text = collective_name(operation.collective);
  for (const TensorSpec& tensor : operation.tensors) {
    text += std::string(" ") + dtype_name(tensor.dtype) + shape_text(tensor.shape);
  }
  if (operation.reduces()) text += std::string(" ") + kOps[operation.reduce_op];
  if (operation.collective == HVD_BROADCAST) text += " root " + std::to_string(operation.root);
  if (operation.prescale != 1) text += " prescale " + std::to_string(operation.prescale);
  if (operation.postscale != 1) text += " postscale " + std::to_string(operation.postscale);
  if (!operation.splits.empty()) text += " splits " + shape_text(operation.splits);
  return text + " set " + std::to_string(operation.process_set);
}

Operation draw_reduction(Random& random, const Set& set, const std::string& name) {
  const bool scatters = random.one_in(5);
  Operation operation = begin(random, scatters ? HVD_REDUCESCATTER : HVD_ALLREDUCE, set, name);
  draw_tensors(random, operation, scatters ? 1 : 0, false);
  constexpr int kAll[] = {HVD_SUM, HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
  operation.reduce_op = random.pick(kAll);
  if (random.one_in(8)) {  // what only some types can do
    const bool adaptive = !scatters && random.one_in(2);
    operation.reduce_op = adaptive ? HVD_ADASUM : HVD_MAX;
    for (TensorSpec& tensor : operation.tensors) tensor.dtype = adaptive ? random.pick(kFloating) : HVD_BOOL;
    if (!adaptive) return operation;
  }
  if (random.one_in(3) && operation.reduce_op != HVD_PRODUCT) operation.prescale = random.pick(kFactors);
  if (random.one_in(3)) operation.postscale = random.pick(kFactors);
  return operation;
}

std::vector<std::vector<std::int64_t>> draw_splits(Random& random, const Set& set) {
  const auto size = static_cast<std::size_t>(set.size());
  std::vector<std::vector<std::int64_t>> splits(size, std::vector<std::int64_t>(size));
  for (auto& from : splits) {
    for (std::int64_t& rows : from) rows = random.between(0, 4);
  }
  return splits;
}

void give_splits(Operation& alltoall, const std::vector<std::int64_t>& splits) {
  alltoall.splits = splits;
  alltoall.tensors.front().shape.front() = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
}

Operation draw_operation(Random& random, const Set& set, const std::string& name) {
  constexpr int kMoving[] = {HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL, HVD_BARRIER};
  if (!random.one_in(3)) return draw_reduction(random, set, name);
  Operation operation = begin(random, random.pick(kMoving), set, name);
  if (operation.collective == HVD_BARRIER) return operation;
  draw_tensors(random, operation, operation.collective == HVD_BROADCAST ? 0 : 1, true);
  if (operation.collective == HVD_BROADCAST) operation.root = random.pick(std::span<const int>(set.ranks));
  if (operation.collective == HVD_ALLGATHER) draw_rows(random, set, operation);
  if (operation.collective == HVD_ALLTOALL) {
    const auto splits = draw_splits(random, set);
    if (set.position >= 0) give_splits(operation, splits[static_cast<std::size_t>(set.position)]);
  }
  return operation;
}

}  // namespace hvd::trace
