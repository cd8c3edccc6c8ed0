// Sends small messages between a rank and its neighbours in the control tree (control_tree.h), and reports lost ranks.
//
// The interface between the negotiation, which is pure, and the implementation that transmits its messages
// (tree_channel.h). Called by the thread that drives the engine, except where any thread is stated.
#pragma once

#include <optional>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/base/status.h"
#include "core/bootstrap/topology.h"
#include "core/net/frame.h"

namespace hvd {

// The rank of the job that a failure found here is due to: the one that this rank has lost or waited for in vain, if
// the failure names one, else this rank.
inline int culprit_of(const Status& own, const Topology& topology) {
  const bool names_another = own.code() == StatusCode::peer_lost || own.culprit() != kNobody;
  return names_another ? own.culprit() : topology.job_rank();
}

// The status to send to other ranks for a failure found here: which rank is lost, or that this rank has given up.
inline Status status_for_peers(const Status& own, const Topology& topology) {
  if (own.code() == StatusCode::peer_lost) return own;
  return Status(StatusCode::aborted, topology.describe(topology.rank) + " has given up the job: " + own.message(),
                culprit_of(own, topology));
}

class ControlChannel {
 public:
  struct Message {
    int from = 0;
    Bytes payload;
  };

  virtual ~ControlChannel() = default;

  // Queues a message to a neighbour and returns. Order is kept per pair of ranks. Messages to a lost peer are dropped:
  // the AbortFlag reports the loss.
  virtual void send(int to, Bytes payload) = 0;

  // Waits until the delivery of sent messages no longer depends on this thread. Called before the engine starts
  // something that needs the peers, which may still need these messages. Throws Timeout whose culprit is a rank that
  // does not read, and the AbortFlag's reason.
  virtual void flush(Deadline deadline) = 0;

  // The next message from any neighbour, if any.
  virtual std::optional<Message> receive() = 0;

  // Notifies every rank that the job is over and why; used when the data plane failed here.
  virtual void broadcast_abort(const Status& reason) = 0;

  // The doorbell's value before the last receive(): anything that arrives later ends a wait() for this value.
  virtual std::uint32_t doorbell_seen() const = 0;

  // Sleeps until a message, a wake(), a request_break() or a raised AbortFlag since the doorbell had the value
  // `doorbell_seen`, or the deadline. `spin`: spins first, for an answer that is due within microseconds; null:
  // sleeps at once. Any thread.
  virtual void wait(std::uint32_t doorbell_seen, Deadline deadline, AdaptiveWait* spin) = 0;

  // Ends the current wait(), or the next one. Any thread.
  virtual void wake() = 0;

  // Makes every rank's wait() end soon and break_requested() return `lock_number`, until a higher one is requested. Any
  // number of ranks may call it. Any thread.
  virtual void request_break(std::uint64_t lock_number) = 0;
  virtual std::uint64_t break_requested() const = 0;

  // Delivers what is queued, sends a goodbye to the peers so that they do not take the closed connections for a death,
  // and closes, by the deadline. Without it the destructor just closes, and the peers report this rank as lost: correct
  // for a rank whose end they have not agreed to.
  virtual void close(Deadline deadline) = 0;

  // In a forked child, before anything else runs there: closes its copies of the connections, which would otherwise
  // stay open when this process dies and hide its death. Async-signal-safe; the child must not use the channel
  // afterwards.
  virtual void abandon_in_child() noexcept = 0;
};

// Ends the job on all ranks because of a failure on this one; no effect if the job has ended already.
inline void end_job(const Status& own, const Topology& topology, AbortFlag& abort, ControlChannel& channel) {
  abort.raise(Status(own.code(), own.message(), culprit_of(own, topology)),
              [&](const Status&) { channel.broadcast_abort(status_for_peers(own, topology)); });
}

}  // namespace hvd
