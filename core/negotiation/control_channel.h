// Small messages between the coordinator (rank 0) and every other rank, and the news of who is gone.
//
// The seam between the negotiation, which is pure, and what carries its messages (star_channel.h). All calls come from
// the engine thread, except wake().
#pragma once

#include <optional>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/net/frame.h"

namespace hvd {

class ControlChannel {
 public:
  struct Message {
    int from = 0;
    Bytes payload;
  };

  virtual ~ControlChannel() = default;

  // Queues a message and returns; `to` is 0 on every rank but 0. Order is kept per pair of ranks. What cannot be
  // delivered because the peer is gone is dropped: the AbortFlag tells of the loss.
  virtual void send(int to, Bytes payload) = 0;

  // Waits until nothing that was sent depends on this thread any more. Before the engine turns to something that needs
  // the peers, which may still need what was sent. Throws Timeout that names a rank that does not read, and the
  // AbortFlag's reason.
  virtual void flush(Deadline deadline) = 0;

  // The next message from anybody, if there is one.
  virtual std::optional<Message> receive() = 0;

  // Tells every rank that the job is over and why; used when the data plane failed here.
  virtual void broadcast_abort(const Status& reason) = 0;

  // Sleeps until a message, a wake() or a raised AbortFlag since the last receive() that returned nothing, or the
  // deadline. `eager`: an answer is due within microseconds, so spin first where cores allow it.
  virtual void wait(Deadline deadline, bool eager) = 0;

  // Ends a wait(), now or the next one. Any thread.
  virtual void wake() = 0;

  // Delivers what is queued, says goodbye to the peers so that they do not take the closing of connections for a
  // death, and closes. Bounded by the deadline. Without it the destructor just closes, and the peers are told that this
  // rank is lost: right for a rank whose end they have not agreed to.
  virtual void close(Deadline deadline) = 0;

  // In a forked child, before anything else runs there: lets go of the connections, which would otherwise stay open
  // when this process dies and hide its death. Async-signal-safe; the child uses nothing of the channel afterwards.
  virtual void abandon_in_child() noexcept = 0;
};

}  // namespace hvd
