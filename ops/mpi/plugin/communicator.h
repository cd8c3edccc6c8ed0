// The ranks of a group as a communicator of MPI, and hvd's collectives by MPI's.
//
// MPI adds in an arbitrary order. A result is the same on every rank, but its last bits may depend on which tensors are
// reduced together, and 16-bit floats are rounded after each addition.
#pragma once

#include "hvd_plugin.h"
#include "ops/algorithms/packing.h"
#include "ops/mpi/plugin/mpi_declarations.h"

namespace hvd::mpi {

class Communicator {
 public:
  // All ranks of the group call together. Throws Failure.
  Communicator(const hvd_plugin_host& host, const hvd_plugin_group& group);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Whether MPI's collectives support this call.
  static bool can_do(const hvd_plugin_call& call);

  // Performs the call on this rank. Throws Failure.
  void run(const hvd_plugin_call& call);

  MPI_Comm comm() const { return comm_; }
  // The largest tag of a message.
  int highest_tag() const { return highest_tag_; }
  // Does not free the communicator in the destructor: messages are still pending.
  void leave_open() { left_open_ = true; }

 private:
  struct Values;

  void allreduce(const Values& values);
  void allgather(const Values& values);
  void broadcast(const Values& values);
  void alltoall(const Values& values);
  void reducescatter(const Values& values);

  const int rank_;
  const int size_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int highest_tag_ = 0;
  bool left_open_ = false;
  Scratch scratch_;
};

}  // namespace hvd::mpi
