// Bytes between two ranks. This header is the specification; local/ and tcp/ implement it, tests/support wraps it to
// inject faults.
//
// A transport knows no collective: between each pair of ranks it keeps, in each direction, an ordered sequence of
// messages. What is posted to one peer arrives there in the order of posting and is matched with that peer's posted
// receives in the order of theirs. Both sides name a message by its Tag and length; if they differ, the ranks are out
// of step and the receiver throws Internal with both values, since nothing that arrives is trusted.
//
// Thread: all calls come from one thread at a time (the engine's). Nothing is copied on posting: memory of a posted
// send or receive belongs to the transport until wait() for its request returned (wait_until(): true), or until a call
// threw.
//
// Progress is made for all posted operations inside the waits, for every peer at once, so that posting all receives and
// sends of a step and then waiting for them in any order cannot deadlock.
//
// Errors: PeerLost (connection closed), Timeout (deadline, names peer and tag), Internal (protocol), or whatever the
// AbortFlag given to the constructor was raised with, noticed within kAbortPollInterval. After a throw the transport
// may only be destroyed. The destructor flushes posted sends for a bounded time, because a rank that leaves must not
// take with it what a peer still waits for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/clock.h"

namespace hvd {

// How long a transport's destructor waits for peers, or the kernel, to take what was posted.
inline constexpr Duration kTransportFlushTime = std::chrono::seconds(1);

struct Tag {
  std::uint32_t process_set = 0;
  std::uint32_t step = 0;      // within the collective; the algorithm's choice
  std::uint64_t sequence = 0;  // CollectiveCall::sequence

  bool operator==(const Tag&) const = default;
};

class Transport {
 public:
  using RequestId = std::uint64_t;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // `peer` is a global rank other than rank(). Zero bytes are a message too.
  virtual RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) = 0;
  virtual RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) = 0;

  // Returns when the operation is complete: a sent message's memory may be reused, a received one is there.
  virtual void wait(RequestId request, Deadline deadline) = 0;

  // The same for what may not come for long: false if it is not complete by then, which is no failure. The request is
  // still to be waited for then. Looks once at least.
  virtual bool wait_until(RequestId request, TimePoint until) = 0;
};

}  // namespace hvd
