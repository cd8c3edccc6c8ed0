// Decides on rank 0 what all ranks perform next: counts requests, finds disagreements, and orders ready operations.
//
// Pure: no lock, no I/O, no clock. Owned by rank 0's engine and called on its thread. It takes the requests of each
// rank in the order in which that rank sent them (the control tree may reorder those of different names), from single
// ranks or whole subtrees, and answers all ranks with one stream of numbered messages.
//
// A *negotiation* of a name takes one submission of it by every rank. Its outcomes:
// - It is ready as soon as every rank has asked or joined, and then executes when answer_policy.h says so.
// - It fails as soon as a request disagrees with the first one, a rank joins that it cannot do without, or the stall
//   limit has passed. The error goes to the ranks that have asked. The others still owe a submission: the next
//   time such a rank asks for the name it gets the same error, which delivers the failure (pending_failures.h). A
//   rank that joins owes nothing.
// - A rank that has received its error may ask again at once and thereby opens (or enters) the next negotiation,
//   whatever the others still owe. They are told apart by counting each rank's submissions: a rank's n-th submission of
//   a name belongs to the n-th negotiation, and gets exactly one answer.
//
// A join that is given up is likewise owed by the ranks that have not joined: their join ends at once with the same
// error, and then each rank restarts the numbering of its unnamed operations (named_submissions.h). Until then an
// unnamed operation of such a rank has a number that the others no longer use, and ends with that error, too.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/config.h"
#include "core/control/coordinator/answer_policy.h"
#include "core/control/coordinator/coordinator_cache.h"
#include "core/control/coordinator/pending_failures.h"
#include "core/control/coordinator/stall_inspector.h"
#include "core/control/protocol/agreement.h"
#include "core/control/protocol/rank_message.h"
#include "core/control/protocol/response.h"
#include "core/control/schedule/schedule_learner.h"
#include "core/operation/name_map.h"
#include "core/tensor/process_set.h"

namespace hvd {

struct CoordinatorOptions {
  std::int32_t process_set = kGlobalProcessSet;  // the one that this coordinator serves
  int size = 1;                                  // ranks from 0
  // Which ranks send messages, and for which ranks; together all of them.
  std::map<int, RankSet> sources{};
  std::size_t cache_capacity = 1024;  // responses; 0: no cache
  bool stall_check = true;
  Duration stall_warning = 10s;
  Duration stall_limit{};  // zero: never give up
  JoinScope join_scope = JoinScope::all;
  bool locks = false;  // lock steps that repeat: schedule_lock.h
  AnswerPolicy answers{};
};

// Once steps repeat it answers with a schedule and is not needed any more (schedule_lock.h). It then forgets all
// negotiations in progress, and ignores what ranks have sent before they knew: when they give the schedule up, each
// rank asks again for whatever it then has pending.
class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, DescribeRank describe_rank);

  // Throws Internal, naming the rank, if the message breaks the protocol; the job is then to be ended. Ignores
  // everything once the shut_down response is out.
  void receive(int source, const SubtreeMessage& message, TimePoint now);

  // The same for a message that all sources have sent alike: of all ranks.
  void receive_from_all(const SubtreeMessage& message, TimePoint now);

  // Whether no operation waits for a rank.
  bool idle() const { return stalls_.nothing_waits(); }

  // The next message to every rank: all answers that are due, in the order in which they became due.
  std::optional<CoordinatorMessage> respond(TimePoint now);

  // This rank has given up the schedule after so many steps.
  void unlock(std::uint64_t steps);

  // Every rank uses these knobs from the next message on.
  void tune(const Knobs& knobs);
  // Lock steps that repeat from now on.
  void allow_locks() { locks_ = true; }

  // When to call respond() even if nothing is received; Deadline::max() if never.
  Deadline next_deadline() const;

 private:
  // The state of one name, while it has an open negotiation, pending failures or a cache slot.
  struct Operation {
    const std::string* name = nullptr;
    std::uint32_t slot = kNoSlot;
    PendingFailures failed;  // negotiations

    // The negotiation in progress.
    bool open = false;
    bool ready = false;  // nothing is missing: in ready_
    TimePoint since{};
    std::uint64_t order = 0;    // of opening, among all negotiations
    int first = 0;              // the rank whose request the others are compared with
    std::uint64_t applied = 0;  // the most messages that a rank had applied when it asked
    RankSet asked;
    // Requests so far: hits on `cached`, or full requests collected in `draft`.
    AgreementPtr cached;
    std::optional<Agreement> draft;
  };

  // A rank that sends messages, and the ranks for which it sends.
  struct Source {
    RankSet ranks;
    std::uint64_t applied = 0;  // the number of messages that all of them have applied
  };

  void receive(const RankMessage& message, TimePoint now);
  void receive_hit(const RankMessage& message, std::uint32_t slot, TimePoint now);
  void receive_request(const RankMessage& message, const SharedRequest& request, TimePoint now);
  void submit(Operation& operation, const RankMessage& message, const SharedRequest& request, TimePoint now);
  std::string find_fault_in(const Operation& operation, const RankSet& ranks, const SharedRequest& request) const;
  void join(const RankSet& ranks, const std::string& name, TimePoint now);
  void end_join();

  // Functions that may end a negotiation may also erase the operation, so callers call them last.
  void open_negotiation(Operation& operation, int first, TimePoint now);
  void collect_requests(Operation& operation);
  void mark_asked(Operation& operation, const RankSet& ranks, std::uint64_t applied);
  void settle_negotiation(Operation& operation, TimePoint now);
  void make_ready(Operation& operation, TimePoint now);
  void answer_ready(TimePoint now);
  void answer_all_ready();
  void forget_ready();
  void execute_negotiated(Operation& operation);
  void fail_negotiation(Operation& operation, const Status& status);
  void close_negotiation(Operation& operation);
  void forget_if_idle(Operation& operation);
  void fail_join(const Status& status);
  void answer_error(const std::string& name, const Status& status, const RankSet& ranks);

  RankSet claim_failures(Operation& operation, const RankSet& ranks);
  RankSet refuse_outdated(const std::string& name, const RankSet& ranks);
  RankSet claim_failed_joins(const std::string& name, const RankSet& ranks);
  void forgive_failures(const RankSet& ranks, std::uint64_t order);
  void limit_failures(const Operation& newest);

  void lock_schedule();
  bool can_lock() const;
  bool is_scheduled(const Operation& operation) const;

  std::uint32_t slot_for(Operation& operation);
  std::uint64_t applied_by_all() const;

  // An operation that waits for ranks, or (null) the join.
  struct Waiter {
    Operation* operation;
    TimePoint since;
  };
  void inspect_stalls(TimePoint now);
  std::vector<Waiter> find_waiters();
  WaitingOperation describe(const Waiter& waiter) const;
  std::vector<Operation*> open_operations();

  const Agreement& agreement_on(const Operation& operation) const;
  [[noreturn]] void violation(const RankSet& ranks, const std::string& what) const;

  const std::int32_t process_set_;
  const RankSet all_;
  const DescribeRank describe_rank_;
  std::map<int, Source> sources_;

  RankSet joined_;
  std::string join_name_;  // the name that the joined ranks have sent
  PendingFailures failed_joins_;
  // Names with pending failures, each with the order of its last one; oldest first. Some may have been claimed since.
  std::deque<std::pair<std::string, std::uint64_t>> indebted_;
  TimePoint heard_{};  // when a rank last asked for something
  NameMap<Operation> operations_;
  std::vector<Operation*> by_slot_;  // the operation whose content each slot holds now
  CoordinatorCache cache_;
  StallInspector stalls_;
  JoinScope join_scope_;
  bool locks_;
  ScheduleLearner learner_;
  std::uint64_t locked_by_ = 0;  // the last message with a schedule

  std::uint64_t rounds_ = 0;  // so far, including joins that were given up
  std::size_t open_negotiations_ = 0;
  AnswerPolicy answers_;
  std::vector<Operation*> ready_;             // in the order in which they became ready
  std::vector<AnswerPolicy::Ready> waiting_;  // the policy's input, for each of ready_
  Deadline due_ = Deadline::max();            // of the next answer
  CoordinatorMessage outgoing_;               // with the number that it will be sent with
  std::optional<int> leaving_;                // the first rank that shuts down
  bool closed_ = false;
};

}  // namespace hvd
