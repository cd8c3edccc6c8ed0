// An elastic job in hvdrun: performs on hosts and store what Membership decides, and tells the user each change in one
// line. Main thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/membership/elastic_store.h"
#include "launcher/membership/membership.h"
#include "launcher/watch/job_end.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

class Epochs {
 public:
  struct Callbacks {
    std::function<void(int process, const std::string& host, int slot)> start;
    std::function<std::string(int process)> host_of;  // its name, if the job has several hosts
    std::function<void(const std::string& line)> say;
    // The job is over; what still runs is to be ended. `culprit`: the process whose failure was the last.
    std::function<void(const EndJob& end, std::optional<int> culprit)> over;
  };

  // `store` outlives it.
  Epochs(const MembershipOptions& options, ElasticStore& store, Callbacks callbacks);

  // The hosts that the job may use, with their slots; starts processes.
  void set_hosts(const std::vector<HostCount>& hosts);
  void process_ended(int process, const RankEnd& end);
  void process_not_started(int process, const std::string& cause);
  // `had_ranks`: some ran there, so that the loss is a cause of the next epoch.
  void host_lost(const std::string& host, const std::string& cause, bool had_ranks);
  // The host is about to be taken away: its processes leave at the next step boundary.
  void host_preempted(const std::string& host);
  // The job is about to be taken away: it ends at the next step boundary.
  void end_early();
  bool ends_early() const { return membership_.ends_early(); }
  // The job ends for another reason: nothing is started or decided any more.
  void stop() { is_stopped_ = true; }

  std::optional<EpochRank> place_of(int process) const;

  bool over() const { return is_stopped_ || membership_.over(); }
  std::optional<Deadline> next_deadline() const { return over() ? std::nullopt : membership_.next_deadline(); }
  void on_time() {
    if (!over()) membership_.time_passed(Clock::now());
    perform();
  }

 private:
  void stands_by(int process);
  void preempted(int process);
  void unreachable(int process, std::int64_t rank);
  void failing(int process, const std::string& said);
  void arrived(int process, std::int64_t arrival);
  void synchronized(int process) {
    membership_.process_synchronized(process, Clock::now());
    perform();
  }
  void note(const std::string& cause);
  std::string name_of(int process) const;  // "rank 1 on h2" if it was in an epoch
  void perform();
  void apply(const StartProcess& start) { callbacks_.start(start.process, start.host, start.slot); }
  void apply(const BeginEpoch& begin);
  void apply(const AnnounceChange& change);
  void apply(const BreakEpoch& broken) { set(broken_key(broken.epoch), broken.cause); }
  void apply(const ExpelProcess& expelled);
  void apply(const LeaveOutHost& left_out);
  void apply(const DismissProcess& dismissed) { answer(dismissed.process, {}); }
  void apply(const EndJob& end) { callbacks_.over(end, last_failed_); }
  void answer(int process, const EpochPlace& place);
  void tell_starting();
  void add(const std::string& key, std::int64_t amount);
  void set(const std::string& key, const std::string& value);
  std::string line_of(const BeginEpoch& begin, const std::string& joined) const;

  ElasticStore& store_;
  const Callbacks callbacks_;
  Membership membership_;
  std::map<int, std::int64_t> arrivals_;  // by process: the last
  std::vector<int> members_;              // of the last epoch, by rank
  int told_starting_ = 0;                 // to the last epoch
  std::optional<TimePoint> paused_;       // since when no epoch goes on
  std::vector<std::string> causes_;       // of the end of the last epoch
  std::optional<int> last_failed_;
  bool is_stopped_ = false;
  bool is_performing_ = false;
};

}  // namespace hvd::launcher
