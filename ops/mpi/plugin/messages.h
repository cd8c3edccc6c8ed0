// Messages between the ranks of a communicator, for hvd_plugin_transport: MPI's non-blocking sends and receives.
//
// The label is sent as MPI's tag, modulo the range of tags; a receive takes the next message from its peer, and
// compares the tags. Messages longer than an int can represent are sent in several parts, in order.
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

// The memory belongs to MPI until test() has returned true or thrown. Throw Failure.
Message* post_send(const Group& group, int peer, std::uint64_t label, const void* bytes, std::size_t size);
Message* post_receive(const Group& group, int peer, std::uint64_t label, void* bytes, std::size_t size);

// Returns true if the message is complete; it is deleted then, and also if this throws.
bool test(Message* message);

}  // namespace hvd::mpi
