// Rank 0's view of who is ready for what: counts requests, finds disagreements, and orders what all ranks do next.
//
// Pure: no lock, no I/O, no clock. Owned by rank 0's engine and called on its thread. It takes each rank's messages in
// the order in which that rank sent them, and answers all ranks with one stream of numbered messages.
//
// A *round* of a name is one submission of it by every rank of the set. What becomes of a round:
// - It executes as soon as every rank has asked or joined.
// - It fails as soon as a request disagrees with the first one, a rank joins that it cannot do without, or the stall
//   limit has passed. The error goes to the ranks that have asked. The others owe the round a submission: the next
//   time such a rank asks for the name it gets the same error, and that pays its debt. A rank that joins owes nothing.
// - A rank that has had its error may ask again at once and thereby opens (or enters) the next round, whatever the
//   others still owe. Rounds are thus told apart by counting each rank's submissions: a rank's n-th submission of a
//   name belongs to the n-th round, and gets exactly one answer.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/collective/process_set.h"
#include "core/negotiation/agreement.h"
#include "core/negotiation/coordinator_cache.h"
#include "core/negotiation/rank_message.h"
#include "core/negotiation/response.h"
#include "core/negotiation/schedule_learner.h"
#include "core/negotiation/stall_inspector.h"
#include "core/submission/operation_key.h"

namespace hvd {

struct CoordinatorOptions {
  std::int32_t process_set = kGlobalProcessSet;  // of which it is the coordinator, with ranks from 0
  int size = 1;
  std::size_t cache_capacity = 1024;  // responses; 0: no cache
  bool stall_check = true;
  Duration stall_warning = 10s;
  Duration stall_limit{};  // zero: never give up
  bool locks = false;      // steps that repeat are locked: schedule_lock.h
};

// Once steps repeat it answers with a schedule and is not needed any more (schedule_lock.h). All rounds in progress are
// forgotten with that, and what ranks have sent before they knew does not count: when they give the schedule up, each
// asks again for whatever it then has pending.
class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, DescribeRank describe_rank);

  // Throws Internal, naming the rank, if the message breaks the protocol; the job is then to be ended. Ignores
  // everything once the shut_down response is out.
  void receive(int rank, const RankMessage& message, TimePoint now);

  // The next message to every rank: all that is due now, in the order in which it became so.
  std::optional<CoordinatorMessage> respond(TimePoint now);

  // The schedule was given up, on this rank, after so many steps.
  void unlock(std::uint64_t steps);

  // When to call respond() even if nothing is received; Deadline::max() if never.
  Deadline next_deadline() const;

 private:
  // A process set and which of its ranks have joined, by position.
  struct Group {
    ProcessSet set;
    std::vector<bool> joined;
    int joined_count = 0;
    std::string join_name;  // as the ranks that have joined call it
    TimePoint heard{};      // when one of its ranks last asked for something
  };

  // A round that failed before every rank had asked.
  struct FailedRound {
    Status status;
    std::vector<bool> owing;  // by position in the set
    int owing_count = 0;
  };

  // One name of one set; lives while it has a round, debts or a cache slot.
  struct Operation {
    const OperationKey* key = nullptr;
    Group* group = nullptr;
    std::uint32_t slot = kNoSlot;
    std::deque<FailedRound> failed;  // oldest first

    // The round in progress.
    bool open = false;
    TimePoint since{};
    std::uint64_t order = 0;    // of opening, among all rounds
    int first = 0;              // position that asked first
    int missing = 0;            // ranks that have neither asked nor joined
    std::uint64_t applied = 0;  // messages that a rank had applied when it asked, at most
    std::vector<bool> asked;    // by position in the set
    // Whoever has asked so far did it by a hit on `cached`; or with requests, collected in `draft`.
    AgreementPtr cached;
    std::optional<Agreement> draft;
  };

  void receive_hit(int rank, std::uint32_t slot, std::uint64_t applied, TimePoint now);
  void receive_request(int rank, const Request& request, TimePoint now);
  void submit(Operation& operation, int position, const Request& request, TimePoint now);
  void join(Group& group, int rank, const Request& request, TimePoint now);
  void end_join(Group& group);

  // Those that may end a round may also erase the operation, and come last in their callers.
  void open_round(Operation& operation, int position, TimePoint now);
  void collect_requests(Operation& operation);
  void mark_asked(Operation& operation, int position);
  void enter_round(Operation& operation, int position);
  void settle_round(Operation& operation);
  void execute_round(Operation& operation);
  void fail_round(Operation& operation, Status status);
  void close_round(Operation& operation);
  void forget_if_idle(Operation& operation);
  void fail_join(Group& group, const Status& status);
  void answer_error(OperationKeyView key, const Status& status, std::vector<std::int32_t> ranks);

  bool pay_debt(Operation& operation, int position);
  void forgive_debts(Group& group, int position);

  void lock_schedule();
  bool can_lock() const;

  std::uint32_t slot_for(Operation& operation);
  std::uint64_t applied_by_all(const Group& group) const;

  // What waits for ranks: an operation, or (null) the group's join.
  struct Waiter {
    Group* group;
    Operation* operation;
    TimePoint since;
  };
  void inspect_stalls(TimePoint now);
  std::vector<Waiter> find_waiters();
  WaitingOperation describe(const Waiter& waiter) const;
  std::vector<Operation*> open_operations(const Group* group);  // null: of all groups

  Group& group_of(int rank, const Request& request);
  int position_of(int rank, const Group& group) const;
  int rank_at(const Operation& operation, int position) const;
  const Request& agreed_on(const Operation& operation) const;
  [[noreturn]] void violation(int rank, const std::string& what) const;

  const int size_;
  const DescribeRank describe_rank_;

  std::map<std::int32_t, Group> groups_;
  OperationMap<Operation> operations_;
  std::vector<Operation*> by_slot_;  // whose current content the slot holds
  CoordinatorCache cache_;
  StallInspector stalls_;
  const bool locks_;
  ScheduleLearner learner_;
  std::uint64_t locked_by_ = 0;  // the last message with a schedule

  std::vector<std::uint64_t> applied_;  // by rank
  std::uint64_t rounds_ = 0;
  CoordinatorMessage outgoing_;  // has the number that it will be sent with
  std::optional<int> leaving_;   // the first rank that shuts down
  bool closed_ = false;
};

}  // namespace hvd
