// Rank 0's view of who is ready for what: counts requests, finds disagreements, and orders what all ranks do next.
//
// Pure: no lock, no I/O, no clock. Owned by rank 0's engine and called on its thread. It takes what each rank says in
// the order in which that rank said it (the control tree may reorder what concerns different names), as single ranks
// or whole subtrees say it, and answers all ranks with one stream of numbered messages.
//
// A *round* of a name is one submission of it by every rank. What becomes of a round:
// - It is ready as soon as every rank has asked or joined, and then executes when answer_policy.h says so.
// - It fails as soon as a request disagrees with the first one, a rank joins that it cannot do without, or the stall
//   limit has passed. The error goes to the ranks that have asked. The others owe the round a submission: the next
//   time such a rank asks for the name it gets the same error, and that delivers the failure (pending_failures.h). A
//   rank that joins owes nothing.
// - A rank that has had its error may ask again at once and thereby opens (or enters) the next round, whatever the
//   others still owe. Rounds are thus told apart by counting each rank's submissions: a rank's n-th submission of a
//   name belongs to the n-th round, and gets exactly one answer.
//
// A join that is given up is owed likewise by the ranks that have not come to it: theirs ends at once with the same
// error, and with it each rank begins to number its unnamed operations anew (named_submissions.h). Until then what such
// a rank submits without a name belongs to a time that the others have left for good, and ends with that error, too.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/collective/process_set.h"
#include "core/config.h"
#include "core/negotiation/agreement.h"
#include "core/negotiation/answer_policy.h"
#include "core/negotiation/coordinator_cache.h"
#include "core/negotiation/pending_failures.h"
#include "core/negotiation/rank_message.h"
#include "core/negotiation/response.h"
#include "core/negotiation/schedule_learner.h"
#include "core/negotiation/stall_inspector.h"
#include "core/submission/name_map.h"

namespace hvd {

struct CoordinatorOptions {
  std::int32_t process_set = kGlobalProcessSet;  // of which it is the coordinator
  int size = 1;                                  // ranks from 0
  // Who sends messages, and for which ranks; together all of them.
  std::map<int, RankSet> sources{};
  std::size_t cache_capacity = 1024;  // responses; 0: no cache
  bool stall_check = true;
  Duration stall_warning = 10s;
  Duration stall_limit{};  // zero: never give up
  JoinScope join_scope = JoinScope::all;
  bool locks = false;  // steps that repeat are locked: schedule_lock.h
  AnswerPolicy answers{};
};

// Once steps repeat it answers with a schedule and is not needed any more (schedule_lock.h). All rounds in progress are
// forgotten with that, and what ranks have sent before they knew does not count: when they give the schedule up, each
// asks again for whatever it then has pending.
class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, DescribeRank describe_rank);

  // Throws Internal, naming the rank, if the message breaks the protocol; the job is then to be ended. Ignores
  // everything once the shut_down response is out.
  void receive(int source, const SubtreeMessage& message, TimePoint now);

  // The same, of what all sources have said alike: of all ranks.
  void receive_from_all(const SubtreeMessage& message, TimePoint now);

  // Waits for nobody.
  bool idle() const { return stalls_.nothing_waits(); }

  // The next message to every rank: all that is due now, in the order in which it became so.
  std::optional<CoordinatorMessage> respond(TimePoint now);

  // The schedule was given up, on this rank, after so many steps.
  void unlock(std::uint64_t steps);

  // From the next message on every rank uses these.
  void tune(const Knobs& knobs);
  // Steps that repeat are locked from now on.
  void allow_locks() { locks_ = true; }

  // When to call respond() even if nothing is received; Deadline::max() if never.
  Deadline next_deadline() const;

 private:
  // One name; lives while it has an open negotiation, pending failures or a cache slot.
  struct Operation {
    const std::string* name = nullptr;
    std::uint32_t slot = kNoSlot;
    PendingFailures failed;  // rounds

    // The round in progress.
    bool open = false;
    bool ready = false;  // nothing is missing: in ready_
    TimePoint since{};
    std::uint64_t order = 0;    // of opening, among all rounds
    int first = 0;              // the rank whose request the others are compared with
    std::uint64_t applied = 0;  // messages that a rank had applied when it asked, at most
    RankSet asked;
    // Whoever has asked so far did it by a hit on `cached`; or with requests, collected in `draft`.
    AgreementPtr cached;
    std::optional<Agreement> draft;
  };

  // Who sends messages for which ranks.
  struct Source {
    RankSet ranks;
    std::uint64_t applied = 0;  // messages, by all of them
  };

  void receive(const RankMessage& message, TimePoint now);
  void receive_hit(const RankMessage& message, std::uint32_t slot, TimePoint now);
  void receive_request(const RankMessage& message, const SharedRequest& request, TimePoint now);
  void submit(Operation& operation, const RankMessage& message, const SharedRequest& request, TimePoint now);
  std::string find_fault_in(const Operation& operation, const RankSet& ranks, const SharedRequest& request) const;
  void join(const RankSet& ranks, const std::string& name, TimePoint now);
  void end_join();

  // Those that may end a round may also erase the operation, and come last in their callers.
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

  // What waits for ranks: an operation, or (null) the join.
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
  std::string join_name_;  // as the ranks that have joined call it
  PendingFailures failed_joins_;
  // Names with pending failures, and the order of the last; oldest first. Some may have been claimed since.
  std::deque<std::pair<std::string, std::uint64_t>> indebted_;
  TimePoint heard_{};  // when a rank last asked for something
  NameMap<Operation> operations_;
  std::vector<Operation*> by_slot_;  // whose current content the slot holds
  CoordinatorCache cache_;
  StallInspector stalls_;
  JoinScope join_scope_;
  bool locks_;
  ScheduleLearner learner_;
  std::uint64_t locked_by_ = 0;  // the last message with a schedule

  std::uint64_t rounds_ = 0;  // so far, and joins that were given up
  std::size_t open_negotiations_ = 0;
  AnswerPolicy answers_;
  std::vector<Operation*> ready_;             // in the order in which they became so;
  std::vector<AnswerPolicy::Ready> waiting_;  // what counts of each
  Deadline due_ = Deadline::max();            // of the next answer
  CoordinatorMessage outgoing_;               // has the number that it will be sent with
  std::optional<int> leaving_;                // the first rank that shuts down
  bool closed_ = false;
};

}  // namespace hvd
