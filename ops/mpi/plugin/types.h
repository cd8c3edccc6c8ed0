// Converts hvd's element types and operations to MPI's.
#pragma once

#include "core/tensor/collective.h"
#include "core/tensor/dtype.h"
#include "ops/mpi/plugin/mpi_declarations.h"

namespace hvd::mpi {

// MPI has no 16-bit floats: they are two bytes, with user-defined operations. Throws Failure.
MPI_Datatype type_of(DType dtype);
// Sum, min, max or product.
MPI_Op op_of(DType dtype, ReduceOp op);

}  // namespace hvd::mpi
