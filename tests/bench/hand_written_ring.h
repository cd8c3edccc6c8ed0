// The allreduce that one would write by hand between hosts: a ring of TCP sockets, one thread, no deadlines, no
// failures but an exception. What wire.cc compares hvd's with.
//
// Idea, as in ops/algorithms/ring.cc: in the first N-1 steps each rank adds the slice that it receives to its own, in
// the other N-1 completed slices go round. A step's pieces are added as they come; the next step begins when all are
// there.
#pragma once

#include <memory>
#include <span>

namespace hvd::bench {

class HandWrittenRing {
 public:
  virtual ~HandWrittenRing() = default;
  // Sums in place. All ranks call with as many values.
  virtual void allreduce(std::span<float> values) = 0;
};

enum class RingCalls {
  sockets,   // poll, send and recv
  zerocopy,  // send with MSG_ZEROCOPY, whose end the kernel reports
  uring,     // io_uring
};

// All ranks of the job that hvd has joined connect. Throws where the kernel refuses.
std::unique_ptr<HandWrittenRing> connect_ring(RingCalls calls);

}  // namespace hvd::bench
