// Decides on rank 0 what all ranks perform next: counts requests, finds disagreements, and orders ready operations.
//
// Pure: no lock, no I/O, no clock. Owned by rank 0's ControlNode. It takes the requests of each rank in the order in
// which that rank sent them (the control tree may reorder those of different names), from single ranks or whole
// subtrees, and sends all ranks one stream of numbered response lists.
//
// A *negotiation* of a name takes one submission of it by every rank. Its outcomes:
// - It is ready as soon as every rank has asked or joined, and then executes when ready_queue.h says so.
// - It fails as soon as a request disagrees with the first one, a rank joins that it cannot do without, or the stall
//   limit has passed. The error goes to the ranks that have asked. The others are late for it: the next
//   time such a rank asks for the name it gets the same error, which delivers the failure (PendingFailures). A
//   rank that joins is late for nothing.
// - A rank that has received its error may ask again at once and thereby opens (or enters) the next negotiation,
//   whatever the others are late for. They are told apart by counting each rank's submissions: a rank's n-th submission
//   of a name belongs to the n-th negotiation, and gets exactly one response.
//
// For a join that is given up the ranks that have not joined are likewise late: their join ends at once with the same
// error, and then each rank restarts the numbering of its unnamed operations (operation_table.h). Until then an
// unnamed operation of such a rank has a number that the others no longer use, and ends with that error, too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/config.h"
#include "core/control/coordinator/negotiations.h"
#include "core/control/coordinator/ready_queue.h"
#include "core/control/coordinator/stall_inspector.h"
#include "core/control/protocol/messages.h"
#include "core/control/protocol/rank_set.h"
#include "core/control/protocol/wire.h"
#include "core/control/schedule/schedule_learner.h"
#include "core/operation/operation_spec.h"
#include "core/tensor/collective.h"

namespace hvd {

struct CoordinatorOptions {
  std::int32_t process_set = kGlobalProcessSet;  // the one that this coordinator serves
  int size = 1;                                  // ranks from 0
  std::vector<int> job_ranks{};                  // by rank: its number in the job; empty: the same
  // Which ranks send messages, and for which ranks; together all of them.
  std::map<int, RankSet> sources{};
  std::size_t cache_capacity = 1024;  // responses; 0: no cache
  bool stall_check = true;
  Duration stall_warning = 10s;
  Duration stall_limit{};  // zero: never give up
  JoinScope join_scope = JoinScope::all;
  bool locks = false;  // lock steps that repeat: schedule_lock.h
  std::size_t max_row_bytes = kMaxRowBytes;
  BatchingPolicy batching{};
};

// Once steps repeat it answers with a schedule and is not needed any more (schedule_lock.h). It then forgets all
// negotiations in progress, and ignores what ranks have sent before they knew: when they give the schedule up, each
// rank asks again for whatever it then has pending.
class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, const DescribeRank& describe_rank);
  Coordinator(const Coordinator&) = delete;  // its parts refer to each other
  Coordinator& operator=(const Coordinator&) = delete;

  // Throws Internal, naming the rank, if the message breaks the protocol; the job is then to be ended. Ignores
  // everything once the shut_down response is out.
  void receive(int source, const SubtreeMessage& message, TimePoint now);

  // The same for a message that all sources have sent alike: of all ranks.
  void receive_from_all(const SubtreeMessage& message, TimePoint now);

  // Whether no operation waits for a rank.
  bool idle() const;

  // The next message to every rank: all responses that are due, in the order in which they became due.
  std::optional<ResponseList> respond(TimePoint now);

  // This rank has given up the schedule after so many steps.
  void unlock(std::uint64_t steps);

  // Every rank uses these knobs from the next message on.
  void tune(const Knobs& knobs);
  // Lock steps that repeat from now on.
  void allow_locks();

  // When to call respond() even if nothing is received; Deadline::max() if never.
  Deadline next_deadline() const;

 private:
  void receive(const RankMessage& message, TimePoint now);
  void receive_hit(const RankMessage& message, std::uint32_t slot, TimePoint now);
  void receive_request(const RankMessage& message, const SharedRequest& request, TimePoint now);
  void submit(NegotiatedName& name, const RankMessage& message, const SharedRequest& request, TimePoint now);
  void join(const RankSet& ranks, const std::string& name, TimePoint now);

  // Functions that may end a negotiation may also erase it, so callers call them last.
  void apply_outcome(Negotiation& negotiation, Negotiations::Outcome outcome, TimePoint now);
  void execute_all(std::span<Negotiation* const> negotiations);
  void execute(Negotiation& negotiation);
  void fail(Negotiation& negotiation, const Status& status);
  void fail_join(const Status& status);
  void lock_schedule();
  void inspect_stalls(TimePoint now);

  void append_response(Response response);
  void append_error(const std::string& name, const Status& status, const RankSet& ranks);
  RankSet deliver_failures(const std::string& name, const std::vector<PendingFailures::Delivery>& deliveries,
                           const RankSet& ranks);
  [[noreturn]] void violation(const RankSet& ranks, const std::string& what) const;

  const std::int32_t process_set_;
  const std::size_t max_row_bytes_;
  const RankSet all_;
  const DescribeRank describe_rank_;
  Sources sources_;
  StallInspector stalls_;
  Joins joins_;
  Negotiations negotiations_;
  ReadyQueue ready_;
  bool locks_;
  ScheduleLearner learner_;
  std::uint64_t locked_by_ = 0;  // the last message with a schedule

  TimePoint last_request_at_{};  // when a rank last asked for something
  ResponseList outgoing_;        // with the number that it will be sent with
  std::size_t row_bytes_ = 0;    // of the responses in it
  std::optional<int> leaving_;   // the first rank that shuts down
  bool closed_ = false;
};

}  // namespace hvd
