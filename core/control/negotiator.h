// One rank's side of the negotiation: sends requests and receives answers. Connects the pure parts (coordinator,
// response cache, wire) with the control channel. Engine thread only.
//
// Rank 0 hosts the coordinator, and ranks between it and others a RequestAggregator (control_tree.h); their own
// requests go to those directly.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/metrics.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/control/coordinator/answer_limit.h"
#include "core/control/coordinator/coordinator.h"
#include "core/control/protocol/response_cache.h"
#include "core/control/tree/control_channel.h"
#include "core/control/tree/control_tree.h"
#include "core/control/tree/message_combiner.h"
#include "core/control/tree/request_aggregator.h"
#include "core/timeline/timeline.h"

namespace hvd {

class Negotiator {
 public:
  // References outlive this object.
  Negotiator(const Topology& topology, const Config& config, ControlChannel& channel, Metrics& metrics,
             Timeline& timeline, std::int32_t process_set, bool locks);

  // Sends to the coordinator what this rank is ready for, and whether it is leaving.
  void announce(const std::vector<const OperationSpec*>& specs, bool shut_down);

  // Processes what has arrived and returns the coordinator's next message, if any. The caller performs it (storing
  // responses with remember()) before it asks for the next. Throws Internal, naming the rank, if a peer breaks the
  // protocol.
  std::optional<CoordinatorMessage> next(TimePoint now);

  // Must be called before the first collective of a message: the ranks below this one must be able to read the message
  // that orders it. Does not wait for the ranks above, or two could wait for each other.
  void settle(Duration delay) {
    if (!tree_.is_leaf()) channel_.flush(deadline_after(delay));
  }

  // The cache slot in which the coordinator knows exactly this request, if any.
  std::optional<std::uint32_t> slot_of(const OperationSpec& spec) const { return cache_.find(spec); }
  // The response that the slot holds.
  std::shared_ptr<const Response> cached(std::uint32_t slot) const { return cache_.at(slot); }

  // Gives up the last schedule; pending operations must be announced again.
  void unlock(std::uint64_t steps) {
    if (coordinator_) coordinator_->unlock(steps);
  }

  // Rank 0: every rank uses these knobs from the coordinator's next message on.
  void tune(const Knobs& knobs) { coordinator_->tune(knobs); }
  // Rank 0: lock steps that repeat from now on.
  void allow_locks() { coordinator_->allow_locks(); }

  // The response of an entry: contained in it, or cached.
  std::shared_ptr<const Response> resolve(CoordinatorMessage::Entry entry) const;
  // Stores a response in the slot that it names, if any; `own` is this rank's request, null if it has none.
  void remember(const std::shared_ptr<const Response>& response, const OperationSpec* own);

  // When next() should be called even if nothing arrives.
  Deadline next_deadline() const;

  // If the stall limit is set, ranks other than rank 0 limit their wait for their parent in the control tree.
  bool limits_answers() const { return answer_limit_.is_set(); }
  // What next() has returned has been performed. `waits`: this rank waits for more answers.
  void performed(TimePoint now, bool waits) { answer_limit_.heard(now, waits); }
  // When the parent is to be taken for stopped, if next() returns nothing until then.
  Deadline answer_deadline(bool joins) const { return answer_limit_.deadline(joins); }
  // The error to report then.
  Status silence_of_parent(TimePoint now) const;

 private:
  std::optional<CoordinatorMessage> next_as_coordinator(TimePoint now);
  std::optional<CoordinatorMessage> next_as_member(TimePoint now);
  CoordinatorMessage from_parent(const Bytes& payload);
  void hear(int source, Bytes message, TimePoint now);
  MessageCombiner::Heard listen(int source, Bytes message, TimePoint now);
  void read(const MessageCombiner::Heard& heard, TimePoint now);
  void read(int source, const SubtreeMessage& message, TimePoint now);
  void send_down(const Bytes& payload);
  void send_up(TimePoint now);
  void mark(const SubtreeMessage& message);

  const Topology& topology_;
  const ControlTree tree_;
  ControlChannel& channel_;
  Metrics& metrics_;
  Timeline& timeline_;
  std::unique_ptr<Coordinator> coordinator_;               // rank 0 only
  std::unique_ptr<RequestAggregator> request_aggregator_;  // ranks between rank 0 and others
  std::unique_ptr<MessageCombiner> message_combiner_;  // in front of either; the latter if a child speaks for several
  ResponseCache cache_;
  AnswerLimit answer_limit_;
  std::uint64_t applied_ = 0;  // number of the last message that next() returned
};

}  // namespace hvd
