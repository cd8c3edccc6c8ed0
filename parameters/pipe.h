// The byte streams between a worker and a parameter server: two rings in shared memory inside a host, a socket between
// hosts. Unread bytes and room for new ones are contiguous, so that requests are read, and answers written, in place.
//
// Either end is used by one thread at a time. Nothing waits, except where it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/net/socket.h"

namespace hvd {

// What fits into a pipe at once: a frame of the largest payload.
inline constexpr std::size_t kPipeBytes = std::size_t{1} << 20;

inline constexpr std::uint64_t kHoldNothing = std::numeric_limits<std::uint64_t>::max();

class Pipe {
 public:
  virtual ~Pipe() = default;

  // The bytes that have arrived and are not consumed, at most kPipeBytes; valid until the next call. Throws PeerLost if
  // the other end is closed (a worker consumes first what the server has sent), Internal if it has broken the protocol.
  virtual std::span<const std::byte> input() = 0;
  virtual void consume(std::size_t bytes) = 0;

  // Memory for `bytes` of output; null if there is no room yet.
  virtual std::byte* room(std::size_t bytes) = 0;
  // The next `bytes` of it are complete.
  virtual void commit(std::size_t bytes) = 0;
  // Passes on what is committed, as far as possible and not held back, and wakes the other end. Throws PeerLost.
  virtual void flush() = 0;
  // Positions are bytes since the start. What is committed behind `position` is held back until a later call.
  virtual std::uint64_t committed() const = 0;
  virtual void hold_behind(std::uint64_t position) = 0;
  // Whether there is output that flush() could not pass on.
  virtual bool has_output() const = 0;

  // For the server's event loop, which watches the descriptor (edge-triggered, for input and for room), and tells the
  // pipe of events.
  virtual int fd() const = 0;
  virtual void notice_event() = 0;
  // Tells the worker whether the server is about to sleep and wants an event, or is awake again. After `true`, look
  // once more before sleeping.
  virtual void is_to_sleep(bool sleeps) = 0;

  // Between hosts: a host that has not answered for the lease counts as lost, and input() says so. Call it now and
  // then, by next_lease_check() at the latest while anything is in flight.
  virtual void check_lease(TimePoint /*now*/) {}
  virtual Deadline next_lease_check() const { return Deadline::max(); }

  // For the worker: sleeps until the server has done something, or until the deadline; may return earlier.
  virtual void wait(Deadline deadline) = 0;
};

// The ends of an authenticated connection. Between processes that share memory (`shares_memory`, the same at both ends)
// the server makes the memory, and the socket only passes it on, wakes the server, and tells of the end. Throw
// PeerLost, Timeout, Internal (no memory).
std::unique_ptr<Pipe> make_server_pipe(Socket socket, bool shares_memory, Duration lease, Deadline deadline);
std::unique_ptr<Pipe> make_worker_pipe(Socket socket, bool shares_memory, Duration lease, const WaitPolicy& policy,
                                       Deadline deadline);

}  // namespace hvd
