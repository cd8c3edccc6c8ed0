#include "ops/mpi/plugin/types.h"

#include <array>
#include <cstddef>

#include "ops/mpi/plugin/session.h"
#include "ops/reduction/reduce.h"

namespace hvd::mpi {

namespace {

template <DType kDType, ReduceOp kOp>
void reduce_pair(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  const std::array<const void*, 2> inputs{in, inout};
  reduce({.dtype = kDType, .op = kOp}, kDType, inputs, kDType, inout, static_cast<std::size_t>(*count));
}

// Created at first use, until MPI ends. Of equal values, and of NaNs, the last one is taken (reduce.h): min and max
// must keep the order of ranks, so that all ranks get the same result.
template <DType kDType, ReduceOp kOp>
MPI_Op own_op() {
  constexpr int kCommutes = kOp == ReduceOp::sum || kOp == ReduceOp::product ? 1 : 0;
  static MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    check(MPI_Op_create(reduce_pair<kDType, kOp>, kCommutes, &made), "making an operation of our own");
    at_finalize([] { MPI_Op_free(&op); });
    return made;
  }();
  return op;
}

template <DType kDType>
MPI_Op own_op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return own_op<kDType, ReduceOp::sum>();
    case ReduceOp::min: return own_op<kDType, ReduceOp::min>();
    case ReduceOp::max: return own_op<kDType, ReduceOp::max>();
    case ReduceOp::product: return own_op<kDType, ReduceOp::product>();
    default: throw Failure(HVD_UNSUPPORTED, "no such operation");
  }
}

MPI_Datatype two_bytes() {
  static MPI_Datatype type = [] {
    MPI_Datatype made = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(2, MPI_BYTE, &made), "making a type for 16-bit floats");
    check(MPI_Type_commit(&made), "making a type for 16-bit floats");
    at_finalize([] { MPI_Type_free(&type); });
    return made;
  }();
  return type;
}

}  // namespace

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::uint8:
    case DType::boolean: return MPI_UINT8_T;
    case DType::int8: return MPI_INT8_T;
    case DType::uint16:  // only moved, like the following
    case DType::int16: return MPI_INT16_T;
    case DType::uint32:
    case DType::int32: return MPI_INT32_T;
    case DType::uint64:
    case DType::int64: return MPI_INT64_T;
    case DType::float16:
    case DType::bfloat16: return two_bytes();
    case DType::float32: return MPI_FLOAT;
    case DType::float64: return MPI_DOUBLE;
  }
  throw Failure(HVD_UNSUPPORTED, "no such type");
}

MPI_Op op_of(DType dtype, ReduceOp op) {
  if (dtype == DType::float16) return own_op_of<DType::float16>(op);
  if (dtype == DType::bfloat16) return own_op_of<DType::bfloat16>(op);
  // MPI's own min and max of NaNs and of signed zeros differ from rank to rank in some libraries.
  const bool is_extreme = op == ReduceOp::min || op == ReduceOp::max;
  if (is_extreme && dtype == DType::float32) return own_op_of<DType::float32>(op);
  if (is_extreme && dtype == DType::float64) return own_op_of<DType::float64>(op);
  switch (op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
    case ReduceOp::product: return MPI_PROD;
    default: throw Failure(HVD_UNSUPPORTED, "no such operation");
  }
}

}  // namespace hvd::mpi
