// How a process of an elastic job gets its place in each epoch, through the job's store. The launcher decides
// (launcher/membership), and sees in the store what processes tell it.
//
//   elastic/arrived/P        counter: process P has called init() so many times
//   elastic/place/P/N        its place, for its Nth arrival: an EpochPlace
//   elastic/synchronized/P   counter: P has been given the job's state
//   elastic/change/E         counter: a MembershipChange, once epoch E is to be left at the next step boundary
//   elastic/broken/E         once epoch E is over: the cause, for those that are still forming it
#pragma once

#include <atomic>
#include <cstdint>
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

// What a change will do; flags that may be combined.
enum class MembershipChange : std::uint8_t { none = 0, removes = 1, adds = 2 };

std::string encode_place(const EpochPlace& place);
EpochPlace parse_place(std::string_view text);  // throws Internal

// The keys, of the whole job: without an epoch's prefix.
inline std::string arrived_key(int process) { return "elastic/arrived/" + std::to_string(process); }
inline std::string synchronized_key(int process) { return "elastic/synchronized/" + std::to_string(process); }
inline std::string place_key(int process, std::int64_t arrival) {
  return "elastic/place/" + std::to_string(process) + "/" + std::to_string(arrival);
}
inline std::string change_key(int epoch) { return "elastic/change/" + std::to_string(epoch); }
inline std::string broken_key(int epoch) { return "elastic/broken/" + std::to_string(epoch); }

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
  // Whether this epoch is to be left at the next step boundary. Asks the store at most every 50 ms, which takes some
  // 50 us within a host.
  MembershipChange change();

 private:
  const Store store_;
  const int process_;
  EpochPlace place_;
  std::atomic<TimePoint> asked_{TimePoint()};
  std::atomic<MembershipChange> change_{MembershipChange::none};
};

}  // namespace hvd
