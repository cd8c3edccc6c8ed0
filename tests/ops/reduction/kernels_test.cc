// Every kernel of every instruction set of this machine, bit by bit against the wide reference.
#include <numeric>

#include "tests/ops/reduction/inputs.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

std::vector<std::size_t> lengths_up_to(std::size_t most) {
  std::vector<std::size_t> lengths(most + 1);
  std::iota(lengths.begin(), lengths.end(), std::size_t{0});
  return lengths;
}

TEST_CASE("kernels: every type, operation, number of inputs and length") {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kOps) {
      if (!reduction_exists(dtype, op)) continue;
      for (std::size_t count = 1; count <= 9; ++count) {
        const Inputs inputs = mixed_inputs(dtype, count, 300, 100 * count + static_cast<std::size_t>(op));
        auto lengths = lengths_up_to(70);
        lengths.insert(lengths.end(), {127, 128, 129, 255, 256, 257, 300});
        check_all_sets({.dtype = dtype, .op = op}, dtype, inputs, dtype, lengths);
      }
    }
  }
}

TEST_CASE("kernels: many inputs and many elements") {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kOps) {
      if (!reduction_exists(dtype, op)) continue;
      for (const std::size_t count : {16u, 17u, 18u, 40u}) {
        const std::size_t elements = count == 17 ? 9001 : 1001;
        check_all_sets({.dtype = dtype, .op = op}, mixed_inputs(dtype, count, elements, count));
      }
    }
  }
}

TEST_CASE("kernels: special values in every combination") {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kOps) {
      if (!reduction_exists(dtype, op)) continue;
      check_all_sets({.dtype = dtype, .op = op}, all_combinations(dtype, 2));
      check_all_sets({.dtype = dtype, .op = op}, all_combinations(dtype, 3));
    }
  }
}

TEST_CASE("kernels: 16-bit floats to and from accumulators") {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    for (const ReduceOp op : kOps) {
      for (const std::size_t count : {1u, 2u, 5u}) {
        const Reduction reduction{.dtype = dtype, .op = op, .prescale = count == 2 ? 0.7 : 1.0, .postscale = 0.3};
        const Inputs narrow = mixed_inputs(dtype, count, 333, count);
        const Inputs wide = mixed_inputs(DType::float32, count, 333, count);
        check_all_sets(reduction, dtype, narrow, DType::float32, lengths_up_to(333));
        check_all_sets(reduction, DType::float32, wide, dtype, lengths_up_to(333));
        check_all_sets(reduction, DType::float32, wide, DType::float32, lengths_up_to(333));
      }
    }
  }
}

TEST_CASE("kernels: factors") {
  const double factors[] = {1.0, 0.5, -2.0, 1.0 / 3, 1.0 / 49, 2.7, 1e-40, 1e40, -0.0, HUGE_VAL, std::nan("")};
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kOps) {
      if (!reduction_exists(dtype, op)) continue;
      const Inputs one = mixed_inputs(dtype, 1, 500, 1), three = mixed_inputs(dtype, 3, 500, 3);
      for (const double before : factors) {
        for (const double after : factors) {
          const Reduction reduction{.dtype = dtype, .op = op, .prescale = before, .postscale = after};
          check_all_sets(reduction, one);
          check_all_sets(reduction, three);
        }
      }
    }
  }
}

TEST_CASE("kernels: factors with many inputs") {
  for (const DType dtype : all_dtypes()) {
    if (!reduction_exists(dtype, ReduceOp::sum)) continue;
    const Inputs inputs = mixed_inputs(dtype, 33, 9001, 7);
    check_all_sets({.dtype = dtype, .postscale = 1.0 / 33}, inputs);
    check_all_sets({.dtype = dtype, .prescale = 0.3, .postscale = 0.25}, inputs);
  }
}

TEST_CASE("kernels: the output may be any one of the inputs") {
  struct Size {
    std::size_t count, elements;
  };
  for (const DType dtype : all_dtypes()) {
    if (!reduction_exists(dtype, ReduceOp::sum)) continue;
    for (const Size size : {Size{1, 300}, Size{2, 300}, Size{3, 300}, Size{9, 77}, Size{20, 9001}}) {
      const Inputs original = mixed_inputs(dtype, size.count, size.elements, size.count);
      Reduction reduction{.dtype = dtype, .postscale = 0.5};
      const Buffer expected = wide_reference(reduction, dtype, original.pointers(), dtype, size.elements);
      for (const InstructionSet set : available_instruction_sets()) {
        reduction.instruction_set = set;
        for (std::size_t alias = 0; alias < size.count; alias += 1 + size.count / 4) {
          Inputs inputs(original);
          reduce(reduction, dtype, inputs.pointers(), dtype, inputs.data(alias), size.elements);
          INFO(describe(reduction, size.count, size.elements) << ", output is input " << alias);
          REQUIRE(std::equal(expected.begin(), expected.end(), inputs.data(alias)));
        }
      }
    }
  }
}

TEST_CASE("kernels: accumulators may be rounded where they are") {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    Reduction reduction{.dtype = dtype, .postscale = 0.3};
    for (const InstructionSet set : available_instruction_sets()) {
      reduction.instruction_set = set;
      Inputs inputs = mixed_inputs(DType::float32, 1, 1003, 5);
      const Buffer expected = wide_reference(reduction, DType::float32, inputs.pointers(), dtype, 1003);
      reduce(reduction, DType::float32, inputs.pointers(), dtype, inputs.data(0), 1003);
      REQUIRE(std::equal(expected.begin(), expected.end(), inputs.data(0)));
    }
  }
}

}  // namespace
}  // namespace hvd
