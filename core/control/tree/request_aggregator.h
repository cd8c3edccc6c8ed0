// A node of the control tree between its subtree and its parent: combines the requests of all its ranks, name by name.
//
// Pure; owned by the ControlNode of a rank that has both a parent and children. Requests are held back by name until
// the whole subtree has asked, and then go up as one message of all these ranks, so that the messages and the work of a
// node do not grow with the size of the job. Nothing is held for longer than the aggregation delay: the requests for a
// name whose other ranks are late go up as they are, since the coordinator must be able to report which ranks are
// missing. A join or a leave goes up at once, and so does a hit that does not mean its slot's current content.
//
// The order of one rank's requests for one name is kept, and that of a join after everything before it. Only what this
// node needs is checked here: the coordinator checks the rest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/control/protocol/messages.h"
#include "core/control/protocol/rank_set.h"
#include "core/operation/operation_spec.h"

namespace hvd {

class RequestAggregator {
 public:
  // `sources`: the senders of messages to this node, itself included, with the ranks for which each speaks.
  RequestAggregator(const std::map<int, RankSet>& sources, Duration delay);

  // Throws Internal, naming the source, if it speaks for ranks other than its own or of messages that it cannot have.
  void receive(int source, const SubtreeMessage& message, TimePoint now);

  // A message that all sources have sent alike goes up past this object, while it is idle: they have applied at least
  // so many messages.
  void let_pass(std::uint64_t applied_by_all) { sources_.have_applied(applied_by_all); }

  // Whether it waits for no rank and has nothing to send.
  bool idle() const { return rounds_.empty() && joined_.empty() && outgoing_.empty(); }

  // Processes a message from above, before any rank of the subtree applies it.
  void pass(const CoordinatorMessage& message);

  // The message that is due to go up, if any.
  std::optional<SubtreeMessage> take(TimePoint now);

  // When to call take() even if nothing was received.
  Deadline next_deadline() const { return next_release_; }

 private:
  // The common request of some ranks for a name: a hit on the name's slot, or a full request.
  struct Statement {
    RankSet ranks;
    std::uint64_t latest = 0;
    std::uint32_t slot = kNoSlot;
    std::optional<OperationSpec> spec;
    std::map<int, RankPart> parts;  // by rank, where the requests differ

    void add(const RankMessage& message) {
      ranks.add(message.ranks);
      latest = std::max(latest, message.latest);
    }
  };

  // A negotiation of a name in this subtree.
  struct Round {
    TimePoint since{};
    RankSet heard;                      // the ranks that have asked
    std::vector<Statement> statements;  // the part of that which has not gone up yet

    // The statement of ranks that ask alike: the one that there is, or a new one.
    Statement& said_alike(std::uint32_t slot);
    Statement& said_alike(const OperationSpec& spec);
  };

  void hear(const RankMessage& message, TimePoint now);
  void hear_hit(const RankMessage& message, std::uint32_t slot, TimePoint now);
  void hear_late_hit(const RankMessage& message, std::uint32_t slot, TimePoint now);
  void hear_request(const RankMessage& message, const SharedRequest& request, TimePoint now);
  void hear_join(const RankMessage& message, const SharedRequest& request);
  bool complete(const Round& round) const;
  void settle(const std::string& name, const RankSet& ranks);
  Round& enter(const std::string& name, const RankSet& ranks, TimePoint now);

  void release(Round& round);
  void release_all();
  void end_negotiation(const std::string& name);
  RankMessage& on_behalf_of(const RankMessage& message);
  RankMessage& outgoing(const RankSet& ranks, std::uint64_t latest);
  void end_join(const RankSet& ranks, std::uint64_t number);
  void end_join_as_told(const Response& response, std::uint64_t number);
  void forget_asked(std::uint64_t number);

  const Duration delay_;
  RankSet subtree_;
  Sources sources_;
  RankSet joined_;
  std::string join_name_;
  NameMap<Round> rounds_;
  Deadline next_release_ = Deadline::max();

  // The content of the cache slots, according to the coordinator's messages.
  struct Slot {
    std::string name;
    std::uint64_t filled_by = 0;
    std::string last_name;  // the previous content
    std::uint64_t last_filled_by = 0;
  };
  std::vector<Slot> slots_;
  std::uint64_t passed_ = 0;     // the number of messages from above
  std::uint64_t locked_by_ = 0;  // the last of them with a schedule

  std::vector<RankMessage> outgoing_;
};

}  // namespace hvd
