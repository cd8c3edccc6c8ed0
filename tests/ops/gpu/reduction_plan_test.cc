// What NCCL is asked for in a reduction, and what it is not.
#include "ops/gpu/reduction_plan.h"
#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::nccl {

namespace {

const ProcessSet kThree{.id = 0, .ranks = {0, 1, 2}};

CollectiveCall reduction(DType dtype, ReduceOp op, double prescale, double postscale) {
  CollectiveCall call;
  call.dtype = dtype;
  call.op = op;
  call.prescale = prescale;
  call.postscale = postscale;
  call.set = &kThree;
  return call;
}

struct Row {
  DType dtype;
  ReduceOp op;
  double prescale, postscale;
  ReductionPlan plan;
};

}  // namespace

TEST_CASE("reductions that NCCL can do") {
  const std::vector<Row> rows = {
      {DType::float32, ReduceOp::sum, 1, 1, {Type::float32, Op::sum}},
      {DType::float64, ReduceOp::min, 1, 1, {Type::float64, Op::min}},
      {DType::boolean, ReduceOp::max, 1, 1, {Type::uint8, Op::max}},
      {DType::uint8, ReduceOp::product, 1, 1, {Type::uint8, Op::product}},
      {DType::float32, ReduceOp::sum, 1, 1.0 / 3, {Type::float32, Op::average}},
      {DType::bfloat16, ReduceOp::sum, 1, 1.0 / 3, {Type::bfloat16, Op::average}},
      {DType::float16, ReduceOp::sum, 1.0 / 7, 7.0 / 3, {Type::float16, Op::average}},
      {DType::float16, ReduceOp::sum, 1.0f / 7, 7.0 / 3, {Type::float16, Op::average}},
      {DType::bfloat16, ReduceOp::sum, 1.0f / 3, 3, {Type::bfloat16, Op::sum}},
      {DType::float64, ReduceOp::sum, 1.0f / 3, 3, {Type::float64, Op::sum, 1.0f / 3 * 3.0}},
      {DType::float32, ReduceOp::sum, 0.3, 2, {Type::float32, Op::sum, 0.6}},
      {DType::float32, ReduceOp::sum, 0.1, 10, {Type::float32, Op::sum}},
      {DType::bfloat16, ReduceOp::sum, 0.5, 1, {Type::bfloat16, Op::sum, 0.5}},
      {DType::bfloat16, ReduceOp::sum, 1, 1.0 / 5, {Type::bfloat16, Op::sum, 1.0 / 5}},
      {DType::float16, ReduceOp::sum, 1.5, 1, {Type::float16, Op::sum, 1.5}},
      {DType::int32, ReduceOp::sum, 3, 2, {Type::int32, Op::sum, 6.0}},
      {DType::int32, ReduceOp::sum, 4, 0.5, {Type::int32, Op::sum, 2.0}},
      {DType::int64, ReduceOp::sum, 1, 1.0 / 3, {Type::int64, Op::average}},
      {DType::int8, ReduceOp::sum, 2, 0.5, {Type::int8, Op::sum}},
  };
  const bool kernels = GENERATE(false, true);  // what NCCL can do is left to it
  for (const Row& row : rows) {
    INFO(dtype_name(row.dtype) << " " << reduce_op_name(row.op) << " " << row.prescale << " " << row.postscale);
    CHECK(plan_reduction(reduction(row.dtype, row.op, row.prescale, row.postscale), kernels) == row.plan);
  }
}

TEST_CASE("reductions that NCCL would do differently are refused with the reason") {
  const auto why = [](DType dtype, ReduceOp op, double prescale, double postscale) -> std::string {
    try {
      plan_reduction(reduction(dtype, op, prescale, postscale), false);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(why(DType::int16, ReduceOp::sum, 1, 1),
            "NCCL cannot do allreduce (sum) of int16 tensors on a GPU: it has no such type; use int32"));
  CHECK(has(why(DType::float32, ReduceOp::adasum, 1, 1), "no such operation"));
  CHECK(has(why(DType::float32, ReduceOp::min, 2, 1), "it can scale sums only"));
  CHECK(has(why(DType::bfloat16, ReduceOp::sum, 0.3, 1), "a factor of 0.3"));
  CHECK(has(why(DType::float16, ReduceOp::sum, 0x1p-20, 3), "cannot be represented in this type"));
  CHECK(has(why(DType::int32, ReduceOp::sum, 0.5, 2), "whole numbers"));
  CHECK(has(why(DType::int32, ReduceOp::sum, 1, 0.25), "averaged over all ranks"));
  CHECK(has(why(DType::int16, ReduceOp::sum, 1, 1), "HVD_GPU_THROUGH_HOST=1"));
}

TEST_CASE("what NCCL would do differently is scaled and widened by kernels, where all ranks have them") {
  const auto by_kernels = [](Type type, Op op, double before, double after) {
    return ReductionPlan{.type = type, .op = op, .by_kernels = true, .before = before, .after = after};
  };
  const std::vector<Row> rows = {
      {DType::float32, ReduceOp::min, 2, 3, by_kernels(Type::float32, Op::min, 2, 3)},
      {DType::bfloat16, ReduceOp::sum, 0.3, 1, by_kernels(Type::bfloat16, Op::sum, 0.3, 1)},
      {DType::int32, ReduceOp::sum, 1, 0.25, by_kernels(Type::int32, Op::sum, 1, 0.25)},
      {DType::int16, ReduceOp::sum, 1, 1, by_kernels(Type::int32, Op::sum, 1, 1)},
      {DType::int16, ReduceOp::sum, 1, 1.0 / 3, by_kernels(Type::int32, Op::sum, 1, 1.0 / 3)},
      {DType::boolean, ReduceOp::max, 2, 2, {Type::uint8, Op::max}},
  };
  for (const Row& row : rows) {
    INFO(dtype_name(row.dtype) << " " << reduce_op_name(row.op) << " " << row.prescale << " " << row.postscale);
    CHECK(plan_reduction(reduction(row.dtype, row.op, row.prescale, row.postscale), true) == row.plan);
  }
  CHECK_THROWS_AS(plan_reduction(reduction(DType::float32, ReduceOp::adasum, 1, 1), true), Unsupported);
}

// Which tensors share a buffer, and where they lie in it.

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
  const Packing both{.pieces = {{0, 0}, {2, 128}}, .elements = 256 + 128};
  CHECK(plan_packing(call_of({3, kLarge, 129}), kPlain, true) == both);
  CHECK(plan_packing(call_of({3, kLarge}), kPlain, true) == Packing{});
  CHECK(plan_packing(call_of({3, 0}), kPlain, true) == Packing{});
  CHECK(plan_packing(call_of({}), kPlain, true) == Packing{});
  CHECK(plan_packing(call_of({3, 3}), kPlain, false) == Packing{});
  CHECK(plan_packing(call_of({4, 4}, Collective::reducescatter), kPlain, true) == Packing{});
  CHECK(plan_packing(call_of({4, 4}, Collective::broadcast), kPlain, true) == Packing{});
}

TEST_CASE("what a kernel has to scale is packed, however large, and be it alone") {
  CHECK(plan_packing(call_of({kLarge}), kScaled, true) == Packing{.pieces = {{0, 0}}, .elements = kLarge});
  CHECK(plan_packing(call_of({4, 0, 200}, Collective::reducescatter), kScaled, true) ==
        Packing{.pieces = {{0, 0}, {2, 128}}, .elements = 128 + 256});
}

}  // namespace hvd::nccl
