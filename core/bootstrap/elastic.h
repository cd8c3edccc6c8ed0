// How a process of an elastic job gets its place in each epoch, through the job's store. The launcher decides
// (launcher/membership), and sees in the store what processes tell it.
//
//   elastic/stands_by/P      counter: process P has come, and wants to know whether the job has begun without it
//   elastic/expected_rank/P  the answer: an ExpectedRank
//   elastic/arrived/P        counter: process P has called init() so many times
//   elastic/place/P/N        its place, for its Nth arrival: an EpochPlace
//   elastic/synchronized/P   counter: P has been given the job's state
//   elastic/preempted/P      counter: P, or the machine that it runs on, is about to be taken away
//   elastic/failing/P        set once P is about to end with a failure, which is the value: "raised ..."
//   elastic/unreachable/P    counter: P's epoch has failed because of this rank; each report adds the rank plus one
//   elastic/change/E         counter: kOneStarting for each newcomer that has been started and has not arrived yet, and
//                            a MembershipChange, once epoch E is to be left at the next step boundary
//   elastic/broken/E         once epoch E is over: the cause, for those that are still forming it
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/bootstrap/store.h"

namespace hvd {

// The place of a process in an epoch.
struct EpochPlace {
  int epoch = 0;  // 1, 2, ...; 0: the process has no place in the job any more
  int rank = 0, size = 1;
  bool has_newcomers = false;  // some ranks need the job's state from others
  bool operator==(const EpochPlace&) const = default;
};

// The place that a newcomer would have if the next epoch began now. Its local rank is its slot of the host, which no
// other process there has.
struct ExpectedRank {
  int size = 0;  // its rank is the last; 0: the job has not begun yet
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
  bool operator==(const ExpectedRank&) const = default;
};

// What a change will do; flags that may be combined.
enum class MembershipChange : std::uint8_t {
  none = 0,
  removes = 1,
  adds = 2,
  ends = 4,  // the job: a process saves what is to be kept, and says so by report_preempted() before it leaves
};
constexpr std::int64_t kOneStarting = 8;

std::string encode_place(const EpochPlace& place);
EpochPlace parse_place(std::string_view text);  // throws Internal
std::string encode_expected_rank(const ExpectedRank& expected_rank);
ExpectedRank parse_expected_rank(std::string_view text);  // throws Internal

// The keys, of the whole job: without an epoch's prefix.
inline std::string arrived_key(int process) { return "elastic/arrived/" + std::to_string(process); }
inline std::string stands_by_key(int process) { return "elastic/stands_by/" + std::to_string(process); }
inline std::string expected_rank_key(int process) { return "elastic/expected_rank/" + std::to_string(process); }
inline std::string synchronized_key(int process) { return "elastic/synchronized/" + std::to_string(process); }
inline std::string preempted_key(int process) { return "elastic/preempted/" + std::to_string(process); }
inline std::string failing_key(int process) { return "elastic/failing/" + std::to_string(process); }
inline std::string unreachable_key(int process) { return "elastic/unreachable/" + std::to_string(process); }
inline std::string place_key(int process, std::int64_t arrival) {
  return "elastic/place/" + std::to_string(process) + "/" + std::to_string(arrival);
}
inline std::string change_key(int epoch) { return "elastic/change/" + std::to_string(epoch); }
inline std::string broken_key(int epoch) { return "elastic/broken/" + std::to_string(epoch); }

// Asks the launcher, once, what place this process would have. Empty if the job has not begun yet, so that it is to
// arrive. `store` has no prefix. Throws Timeout or PeerLost.
std::optional<ExpectedRank> ask_expected_rank(const Store& store, int process, Deadline deadline);

// This process's side of an elastic job, in one epoch. Any thread.
class EpochMember {
 public:
  // Arrives, and waits for a place: until the other processes have left the last epoch, or this one is wanted. The
  // launcher always answers, at the latest when the job is over; PeerLost if it is gone. Throws an Error with
  // StatusCode::shut_down if the job has no place for this process any more. `store` has no prefix.
  EpochMember(Store store, int process);

  const EpochPlace& place() const { return place_; }
  // The store of this epoch, whose waits end with Aborted if it is over before it has begun.
  Store store_of_epoch() const;

  // This process has the job's state now, as new ranks do once others have given it to them.
  void report_synchronized() const { store_.add(synchronized_key(process_), 1); }
  // This process is to leave at the next step boundary, and gets no place any more.
  void report_preempted() const { store_.add(preempted_key(process_), 1); }
  // This process is about to end with this failure. The others do not wait for its end, which may take seconds. Does
  // nothing if the launcher is gone.
  void report_failing(const std::string& cause) const;
  // This epoch has failed for this process because it could not reach that rank. To be called before it arrives again.
  // Does nothing if the launcher is gone.
  void report_unreachable(int rank) const;
  // Whether this epoch is to be left at the next step boundary. Asks the store at most every 50 ms, which takes some
  // 50 us within a host.
  MembershipChange change();
  // Processes that had been started, and had not arrived yet, when change() last asked: newcomers, unless they fail.
  int starting() const { return starting_; }

 private:
  const Store store_;
  const int process_;
  EpochPlace place_;
  std::atomic<TimePoint> asked_{TimePoint()};
  std::atomic<MembershipChange> change_{MembershipChange::none};
  std::atomic<int> starting_{0};
};

}  // namespace hvd
