// Which tensors share a buffer, and where they lie in it.
#include "ops/nccl/packing.h"

#include "tests/support/catch.h"

namespace hvd::nccl {

namespace {

const ProcessSet kTwo{.id = 0, .ranks = {0, 1}};
constexpr std::int64_t kLarge = kSmallBytes / 4;  // floats

CollectiveCall call_of(std::vector<std::int64_t> elements, Collective collective = Collective::allreduce) {
  CollectiveCall call;
  call.collective = collective;
  call.set = &kTwo;
  for (const std::int64_t count : elements) call.pieces.push_back({.elements = count});
  return call;
}

const ReductionPlan kPlain{};
const ReductionPlan kScaled{.by_kernels = true, .before = 0.5};

}  // namespace

TEST_CASE("small tensors of an allreduce share a buffer, large ones go by themselves") {
  const Packing both{.places = {{0, 0}, {2, 128}}, .elements = 256 + 128};
  CHECK(plan_packing(call_of({3, kLarge, 129}), kPlain, true) == both);
  CHECK(plan_packing(call_of({3, kLarge}), kPlain, true) == Packing{});
  CHECK(plan_packing(call_of({3, 0}), kPlain, true) == Packing{});
  CHECK(plan_packing(call_of({}), kPlain, true) == Packing{});
  CHECK(plan_packing(call_of({3, 3}), kPlain, false) == Packing{});
  CHECK(plan_packing(call_of({4, 4}, Collective::reducescatter), kPlain, true) == Packing{});
  CHECK(plan_packing(call_of({4, 4}, Collective::broadcast), kPlain, true) == Packing{});
}

TEST_CASE("what a kernel has to scale is packed, however large, and be it alone") {
  CHECK(plan_packing(call_of({kLarge}), kScaled, true) == Packing{.places = {{0, 0}}, .elements = kLarge});
  CHECK(plan_packing(call_of({4, 0, 200}, Collective::reducescatter), kScaled, true) ==
        Packing{.places = {{0, 0}, {2, 128}}, .elements = 128 + 256});
}

}  // namespace hvd::nccl
