// Small messages between a rank and its neighbours in the control tree (control_tree.h), and the news of who is gone.
//
// The seam between the negotiation, which is pure, and what carries its messages (tree_channel.h). Calls come from
// whoever drives the engine, one thread at a time, but for those that any thread may make.
#pragma once

#include <optional>
#include <string>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/base/status.h"
#include "core/net/frame.h"
#include "core/rendezvous/topology.h"

namespace hvd {

// What the other ranks are told of a failure that this one has found: who is lost, or that this rank has given up.
Status as_told(const Status& own, const Topology& topology);

class ControlChannel {
 public:
  struct Message {
    int from = 0;
    Bytes payload;
  };

  virtual ~ControlChannel() = default;

  // Queues a message to a neighbour and returns. Order is kept per pair of ranks. What cannot be delivered because the
  // peer is gone is dropped: the AbortFlag tells of the loss.
  virtual void send(int to, Bytes payload) = 0;

  // Waits until nothing that was sent depends on this thread any more. Before the engine turns to something that needs
  // the peers, which may still need what was sent. Throws Timeout that names a rank that does not read, and the
  // AbortFlag's reason.
  virtual void flush(Deadline deadline) = 0;

  // The next message from any neighbour, if there is one.
  virtual std::optional<Message> receive() = 0;

  // Tells every rank that the job is over and why; used when the data plane failed here.
  virtual void broadcast_abort(const Status& reason) = 0;

  // Where the doorbell stood before the last receive(): what has come since ends a wait() from there.
  virtual std::uint32_t heard() const = 0;

  // Sleeps until a message, a wake(), a request_break() or a raised AbortFlag since the doorbell stood at `heard`, or
  // the deadline. `busily`: how to look out for an answer that is due within microseconds; null: asleep at once. Any
  // thread.
  virtual void wait(std::uint32_t heard, Deadline deadline, AdaptiveWait* busily) = 0;

  // Ends a wait(), now or the next one. Any thread.
  virtual void wake() = 0;

  // Has every rank's wait() end soon and break_requested() return this, until it is asked for a higher one. Any number
  // of ranks may call it. Any thread.
  virtual void request_break(std::uint64_t epoch) = 0;
  virtual std::uint64_t break_requested() const = 0;

  // Delivers what is queued, says goodbye to the peers so that they do not take the closing of connections for a
  // death, and closes. Bounded by the deadline. Without it the destructor just closes, and the peers are told that this
  // rank is lost: right for a rank whose end they have not agreed to.
  virtual void close(Deadline deadline) = 0;

  // In a forked child, before anything else runs there: closes its copies of the connections, which would otherwise stay open
  // when this process dies and hide its death. Async-signal-safe; the child uses nothing of the channel afterwards.
  virtual void abandon_in_child() noexcept = 0;
};

// What has failed on this rank ends the job on all of them, unless it has ended already: then nothing happens.
void end_job(const Status& own, const Topology& topology, AbortFlag& abort, ControlChannel& channel);

}  // namespace hvd
