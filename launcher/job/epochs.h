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

// Between two epochs: how long no epoch goes on, and why the last one ended.
class EpochPause {
 public:
  void add_cause(const std::string& cause) { causes_.push_back(cause); }
  // From now on, unless no epoch goes on already.
  void begin() {
    if (!since_) since_ = Clock::now();
  }
  void begin(const std::string& cause) {
    add_cause(cause);
    begin();
  }
  // "0.012", in seconds; and "; rank 1 has failed: ..." for each cause.
  std::string length_text() const;
  std::string causes_text() const;
  void end() { *this = {}; }

 private:
  std::optional<TimePoint> since_;
  std::vector<std::string> causes_;
};

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
  void failing(int process, const std::string& said);
  void arrived(int process, std::int64_t arrival);
  std::string name_of(int process) const;  // "rank 1 on h2" if it was in an epoch
  void perform();
  void perform(const MembershipAction& action);
  void begin_epoch(const BeginEpoch& begin);
  void announce(const AnnounceChange& change);
  void answer(int process, const EpochPlace& place);
  void tell_starting();
  std::string line_of(const BeginEpoch& begin, const std::string& joined) const;

  ElasticStore& store_;
  const Callbacks callbacks_;
  Membership membership_;
  std::map<int, std::int64_t> arrivals_;  // by process: the last
  std::vector<int> members_;              // of the last epoch, by rank
  int told_starting_ = 0;                 // to the last epoch
  EpochPause pause_;
  std::optional<int> last_failed_;
  bool is_stopped_ = false;
  bool is_performing_ = false;
};

}  // namespace hvd::launcher
