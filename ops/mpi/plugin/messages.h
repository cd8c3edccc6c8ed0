// Messages between the ranks of a communicator, as hvd_plugin_transport has them: MPI's non-blocking sends and
// receives.
//
// The label travels as MPI's tag, as far as that reaches; a receive takes whatever comes next from its peer, and
// compares. What is longer than an int can say goes in several parts, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/mpi/plugin/mpi_declarations.h"

namespace hvd::mpi {

class Group;

struct Message {
  // Part i is requests[i].
  std::vector<MPI_Request> requests;
  std::vector<int> lengths;
  int tag = 0;
  bool received = false;
};

// Memory is MPI's until test() has said true, or thrown. Throw Failure.
Message* post_send(const Group& group, int peer, std::uint64_t label, const void* bytes, std::size_t size);
Message* post_receive(const Group& group, int peer, std::uint64_t label, void* bytes, std::size_t size);

// True if it is complete. It is gone then, and also if this throws.
bool test(Message* message);

}  // namespace hvd::mpi
