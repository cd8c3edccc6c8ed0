// One rank's side of the negotiation: sends requests and receives response lists. Connects the pure parts (the rank's
// ControlNode and its response cache) with the control channel, the clock and the timeline. Used by the thread that
// drives the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/metrics.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/control/control_node.h"
#include "core/control/protocol/response_cache.h"
#include "core/control/tree/control_channel.h"
#include "core/timeline/timeline.h"

namespace hvd {

// The timeout of a rank that waits for the coordinator's response: after it, the rank takes its parent for stopped.
// Pure.
//
// The coordinator answers every request within the stall limit, if only with an error: first the operations that a join
// waits for, then, within another limit, the join. So a rank that has received nothing for longer waits for a rank that
// does not run.
class ResponseTimeout {
 public:
  ResponseTimeout() = default;  // none
  // `margin`: how long a response may take in addition to the coordinator's limit.
  ResponseTimeout(Duration limit, Duration margin);

  bool is_set() const;

  // This rank has asked for something.
  void asked(TimePoint now);
  // This rank has received something, or has performed something with others. `waits`: it waits for more.
  void restart(TimePoint now, bool waits);

  // `joins`: a join is among the pending operations.
  Deadline deadline(bool joins) const;
  Duration waited(TimePoint now) const;

 private:
  Duration limit_{};
  Duration margin_{};
  std::optional<TimePoint> since_;
};

class Negotiator {
 public:
  // References outlive this object.
  Negotiator(const Topology& topology, const Config& config, ControlChannel& channel, Metrics& metrics,
             Timeline& timeline, std::int32_t process_set, bool locks);

  // Sends to the coordinator what this rank is ready for, and whether it is leaving.
  void announce(const std::vector<const OperationSpec*>& specs, bool shut_down);

  // Processes what has arrived and returns the coordinator's next message, if any. The caller performs it (storing
  // responses in the cache) before it asks for the next. Throws Internal, naming the rank, if a peer breaks the
  // protocol.
  std::optional<ResponseList> next(TimePoint now);

  // Must be called before the first collective of a message: the ranks below this one must be able to read the message
  // that orders it. Does not wait for the ranks above, or two could wait for each other.
  void flush_messages(Duration delay);

  ResponseCache& cache();

  // Gives up the last schedule; pending operations must be announced again.
  void unlock(std::uint64_t steps);

  // Rank 0: every rank uses these knobs from the coordinator's next message on.
  void tune(const Knobs& knobs);
  // Rank 0: lock steps that repeat from now on.
  void allow_locks();

  // When next() should be called even if nothing arrives.
  Deadline next_deadline() const;

  // If the stall limit is set, ranks other than rank 0 limit their wait for their parent in the control tree.
  bool has_response_timeout() const;
  // What next() has returned has been performed. `waits`: this rank waits for more responses.
  void performed(TimePoint now, bool waits);
  // When the parent is to be taken for stopped, if next() returns nothing until then.
  Deadline response_deadline(bool joins) const;
  // The error to report then.
  Status silence_of_parent(TimePoint now) const;

 private:
  // The node's: sends through the channel, and shows in the timeline which ranks have asked.
  struct Port {
    ControlChannel& channel;
    Timeline& timeline;

    void send(int to, Bytes message);
    static void perform(NodeWork, auto body);
    void read(NodeWork work, const SubtreeMessage& message);
    void mark(const SubtreeMessage& message);
  };

  std::optional<ResponseList> next_message(TimePoint now);

  const Topology& topology_;
  Port port_;
  Metrics& metrics_;
  ControlNode node_;
  ResponseCache cache_;
  ResponseTimeout response_timeout_;
};

}  // namespace hvd
