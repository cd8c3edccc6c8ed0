// Transport: sends bytes between two ranks. This header is the specification; local/ and tcp/ implement it,
// tests/support wraps it to inject faults.
//
// A transport knows no collective: between each pair of ranks it keeps, in each direction, an ordered sequence of
// messages. Messages posted to a peer arrive there in the order of posting and are matched with that peer's receives in
// the order of their posting. Both sides name a message by its Tag and length; if they differ, the ranks are out of
// step and the receiver throws Internal with both values, since received data is never trusted.
//
// Thread: all calls come from one thread at a time (the engine's). Posting copies nothing: the memory of a posted send
// or receive belongs to the transport until wait() for its request has returned (wait_until(): true), or a call has
// thrown.
//
// The waits make progress on all posted operations, for every peer at once, so that posting all receives and sends of a
// step and then waiting for them in any order cannot deadlock.
//
// Errors: PeerLost (connection closed), Timeout (deadline, names peer and tag), Internal (protocol), or the error that
// the AbortFlag given to the constructor was raised with, detected within kAbortPollInterval. After an exception the
// transport may only be destroyed. The destructor flushes posted sends for a bounded time, because peers may still wait
// for messages of a rank that leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/clock.h"

namespace hvd {

// How long a transport's destructor waits until peers, or the kernel, have taken the posted messages.
inline constexpr Duration kTransportFlushTime = std::chrono::seconds(1);

struct Tag {
  std::uint32_t process_set = 0;
  std::uint32_t step = 0;      // within the collective; chosen by the algorithm
  std::uint64_t sequence = 0;  // CollectiveCall::sequence

  bool operator==(const Tag&) const = default;
};

class Transport {
 public:
  using RequestId = std::uint64_t;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // `peer` is a global rank other than rank(). A message may have zero bytes.
  virtual RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) = 0;
  virtual RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) = 0;

  // Returns when the operation is complete: a sent message's memory may be reused, a received message has arrived.
  virtual void wait(RequestId request, Deadline deadline) = 0;

  // Like wait(), for messages that may take long: returns false if the operation is not complete by `until`, which is
  // no failure; the request must then be waited for again. Checks at least once.
  virtual bool wait_until(RequestId request, TimePoint until) = 0;
};

}  // namespace hvd
