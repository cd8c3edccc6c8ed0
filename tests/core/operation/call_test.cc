// What is wrong with a call, as far as its rank can tell without the others.
#include "core/operation/call.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

const ProcessSet kTwo{.id = 0, .ranks = {0, 1}};

OperationSpec check_allgather(const std::vector<std::int64_t>& shape, void* data = nullptr) {
  const TensorView input{.data = data, .dtype = DType::float32, .shape = shape};
  return check_call({.collective = Collective::allgather, .inputs = {&input, 1}}, kTwo, 0);
}

}  // namespace

TEST_CASE("A tensor without elements needs no memory, and its other dimensions count like any") {
  CHECK(check_allgather({0, 1 << 20, 8}).tensors.front().shape == Shape{0, 1 << 20, 8});
  CHECK_THROWS_WITH(check_allgather({1, 2}), "an input has elements but no memory");
  // Ranks with rows of this size could not have any, and the others' decoders refuse it.
  CHECK_THROWS_WITH(check_allgather({0, std::int64_t{1} << 62, 8}), Catch::Matchers::Contains("is larger than memory"));
  CHECK_THROWS_WITH(check_allgather({std::int64_t{1} << 62, 8, 0}), Catch::Matchers::Contains("is larger than memory"));
}

TEST_CASE("An alltoall has a limited number of ranks") {
  const std::vector<std::int64_t> shape{0};
  const TensorView input{.data = nullptr, .dtype = DType::float32, .shape = shape};
  ProcessSet set{.id = 0, .ranks = std::vector<int>(kMaxAlltoallRanks)};
  const auto check = [&] { return check_call({.collective = Collective::alltoall, .inputs = {&input, 1}}, set, 0); };
  CHECK(check().splits.size() == kMaxAlltoallRanks);
  set.ranks.push_back(0);
  CHECK_THROWS_WITH(check(), "an alltoall of 2801 ranks; at most 2800 are possible");
}
