// How the timeline calls what happens: as Horovod does, where it has the thing.
#include "core/execution/timeline_rows.h"

#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("Activities have Horovod's names") {
  OperationSpec adasum = allreduce("x");
  adasum.op = ReduceOp::adasum;
  CHECK(operation_activity(adasum) == "ADASUM");
  CHECK(negotiation_activity(adasum) == "NEGOTIATE_ADASUM");
  struct Row {
    OperationSpec spec;
    std::string operation, by_mpi, by_nccl;
  };
  for (const Row& row : {Row{allreduce("x"), "ALLREDUCE", "MPI_ALLREDUCE", "NCCL_ALLREDUCE"},
                         Row{broadcast("x", 0), "BROADCAST", "MPI_BCAST", "NCCL_BCAST"},
                         Row{allgather("x", {1}), "ALLGATHER", "MPI_ALLGATHER", "NCCL_ALLGATHER"},
                         Row{alltoall("x", {1}), "ALLTOALL", "MPI_ALLTOALL", "NCCL_ALLTOALL"},
                         Row{reducescatter("x", {1}), "REDUCESCATTER", "MPI_REDUCESCATTER", "NCCL_REDUCESCATTER"}}) {
    CHECK(operation_activity(row.spec) == row.operation);
    CHECK(negotiation_activity(row.spec) == "NEGOTIATE_" + row.operation);
    CHECK(backend_activity("mpi", row.spec) == row.by_mpi);
    CHECK(backend_activity("nccl", row.spec) == row.by_nccl);
    CHECK(backend_activity("shared-memory", row.spec) == "shared-memory");
  }
}
