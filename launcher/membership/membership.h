// Decides who takes part in an elastic job: which processes are started on which hosts, which of them form each epoch,
// and with which ranks. Pure; time is an argument.
//
// An elastic job is a sequence of epochs. Each is a job of its own for the processes in it: ranks from 0, connections,
// shared memory. A process arrives when it calls init(), and waits for its place in the next epoch:
//
//   starting -> waiting -> in the epoch -> waiting -> ...         (gathering) -> running -> gathering -> ... -> over
//
// A running epoch ends when one of its processes ends or leaves it. The others notice that by themselves (their
// operations fail) or, if a process wants to join or is to leave, by an announcement that they see at their next step
// boundary. They all arrive again, and the next epoch begins once nobody of the last one is missing: without newcomers,
// who join when they have arrived, so that nobody waits for a process that starts. The
// first newcomer waits up to kLongestSettling for others that have been started.
//
// Where two hosts cannot reach each other, epochs fail although nobody is lost. If that happens kMostFailedEpochs times
// in succession, without a process that was synchronised in between, one of the two hosts is left out: its processes
// are dismissed, and it cools down like a host on which processes fail.
//
// Processes of the last epoch keep their order and get the lowest ranks. So rank 0 always has the job's state, unless
// every process that had it is gone; then the job is over.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/bootstrap/elastic.h"

namespace hvd::launcher {

// How long newcomers wait for others that are starting, so that each host or slot that is added does not cost the
// others an epoch.
constexpr Duration kLongestSettling = 5s;

// That fail in succession because ranks cannot reach each other.
constexpr int kMostFailedEpochs = 2;
// An epoch that lasted longer has nothing to do with the failure of the one before.
constexpr Duration kLongEpoch = std::chrono::minutes(5);

struct MembershipOptions {
  int num_proc = 1;                  // that the first epoch waits for
  int min_np = 1, max_np = 1;        // of every epoch
  int spares = 0;                    // processes beyond max_np that are kept ready
  bool fixed_hosts = false;          // no others come: once all are preempted the job ends early
  std::optional<int> reset_limit{};  // epochs after the first one; empty: any number
  Duration elastic_timeout = 600s;   // for enough processes to arrive
  // How long a host gets no new processes after one has failed there: doubled with each failure until one succeeds.
  Duration cooldown_min = 1s, cooldown_max = 300s;
  auto operator<=>(const MembershipOptions&) const = default;
};

// EX_CONFIG of sysexits.h: the exit code of a process for which a restart would not help. Before the first epoch it
// ends the job.
constexpr int kFailedForGood = 78;

enum class ProcessEnd {
  finished,  // exit code 0, after it had left its epoch in order
  failed,
  failed_for_good,  // with exit code kFailedForGood
  dismissed,        // it had no place in the job any more
};

// What the caller has to do.
struct StartProcess {
  int process = 0;  // numbers start at 0, and are not used again
  std::string host;
  int slot = 0;  // of the host, from 0; no other process that lives there has it
  auto operator<=>(const StartProcess&) const = default;
};
// Gives their places to processes that wait: the rank of each is its index.
struct BeginEpoch {
  int epoch = 0;  // 1, 2, ...
  std::vector<int> processes;
  auto operator<=>(const BeginEpoch&) const = default;
};
// Tells the processes of the epoch to leave it at their next step boundary.
struct AnnounceChange {
  int epoch = 0;
  bool adds = false, removes = false;
  bool ends = false;  // the job ends early: they save its state before they leave, and do not come back
  auto operator<=>(const AnnounceChange&) const = default;
};
// Ends the waits of processes that are still forming this epoch.
struct BreakEpoch {
  int epoch = 0;
  std::string cause;
  auto operator<=>(const BreakEpoch&) const = default;
};
// Says that nobody waits for the process any more: it has not arrived within the elastic timeout.
struct ExpelProcess {
  int process = 0;
  auto operator<=>(const ExpelProcess&) const = default;
};
// Gives the reason why the processes of a host are dismissed.
struct LeaveOutHost {
  std::string host, other;  // that cannot reach each other
  auto operator<=>(const LeaveOutHost&) const = default;
};
// Tells a process that waits that it has no place: it is to end with exit code 0.
struct DismissProcess {
  int process = 0;
  auto operator<=>(const DismissProcess&) const = default;
};
// The job is over; what still runs is to be ended. Comes once, last.
struct EndJob {
  std::string failure;  // empty: it has finished, or
  bool early = false;   // was left in order because end_early() was called
  auto operator<=>(const EndJob&) const = default;
};
using MembershipAction = std::variant<StartProcess, BeginEpoch, AnnounceChange, BreakEpoch, ExpelProcess, LeaveOutHost,
                                      DismissProcess, EndJob>;

// A host, by name, and how many processes it may have.
using HostCount = std::pair<std::string, int>;

class Membership {
 public:
  Membership(const MembershipOptions& options, TimePoint now) : options_(options), gathering_since_(now) {}

  // Events. After each, the caller performs take_actions(). Those of processes that have ended are ignored.

  // All hosts that may be used now, with their slots. The ranks of the first epoch follow their order.
  void hosts_changed(const std::vector<HostCount>& hosts, TimePoint now);
  // The process waits for a place: it has called init(), for the first time or again.
  void process_arrived(int process, TimePoint now);
  // The process has the job's state: it was synchronised in its epoch.
  void process_synchronized(int process, TimePoint now);
  // `cause`: of a failure, for the others and for the log.
  void process_ended(int process, ProcessEnd how, const std::string& cause, TimePoint now);
  // The process is about to end with this failure: nobody waits for it any more, and process_ended() follows.
  void process_fails(int process, const std::string& cause, TimePoint now);
  // The process's epoch has failed because it could not reach this rank. Comes before the process arrives again.
  void process_cannot_reach(int process, std::int64_t rank);
  // The process is to leave at the next step boundary: it is about to be taken away. Likewise all processes of a host.
  void process_preempted(int process, TimePoint now);
  void host_preempted(const std::string& host, TimePoint now);
  // The whole job is about to be taken away. Those who have its state leave at the next step boundary, and have it
  // saved then, for which they may be fewer than min_np; process_preempted() says of each that this is done.
  void end_early(TimePoint now);
  // The host is unreachable, with its processes, until hosts_changed() names it and its cooldown is over.
  void host_lost(const std::string& host, const std::string& cause, TimePoint now);
  // next_deadline() is reached.
  void time_passed(TimePoint now) { advance(now); }

  std::vector<MembershipAction> take_actions() { return std::exchange(actions_, {}); }
  std::optional<Deadline> next_deadline() const;

  int epoch() const { return epoch_; }  // the last that has begun; 0: none
  bool running() const { return phase_ == Phase::running; }
  bool over() const { return phase_ == Phase::over; }
  bool ends_early() const { return ends_early_; }
  bool alive(int process) const { return processes_.contains(process); }
  // Whether it has said that it fails, and has not ended yet.
  bool fails(int process) const {
    const auto found = processes_.find(process);
    return found != processes_.end() && found->second.place == Place::failing;
  }
  // Processes that have been started, have not arrived yet, and would join the running epoch. 0 if none runs.
  int starting_newcomers() const;
  // The process's rank in the last epoch that has begun; empty: it was not in it.
  std::optional<int> rank_of(int process) const;
  // The place that a process which has not arrived yet would have if the next epoch began now.
  Prospect prospect_of(int process) const;

  auto operator<=>(const Membership&) const = default;

 private:
  enum class Phase { gathering, running, over };
  enum class Place {
    starting,  // it has not arrived yet
    waiting,
    member,    // of the running epoch; while gathering: of the last one, and has not arrived again
    failing,   // it has not ended yet, and keeps its slot until then
    expelled,  // it runs, but is not counted
  };
  struct Process {
    std::string host;
    int slot = 0;
    Place place = Place::starting;
    bool leaves = false;     // it gets no place in the next epoch
    bool has_state = false;  // of the job
    auto operator<=>(const Process&) const = default;
  };
  struct Host {
    int slots = 0;  // 0: it may not be used
    int place = 0;  // in the list of hosts
    int failures = 0;
    bool preempted = false;  // gets no processes until it was lost, and has come back
    TimePoint usable_from{};
    auto operator<=>(const Host&) const = default;
  };

  // Everything that follows from the events so far.
  void advance(TimePoint now);
  void mark_leaving();
  void dismiss_leaving();
  void start_processes(TimePoint now);
  void give_up_waiting(TimePoint now);
  void end_if_hopeless();
  void begin_if_complete(TimePoint now);
  void announce_if_needed(TimePoint now);

  void begin();
  // The processes of the last epoch have arrived, as far as they are there. May end the job.
  void leave_out_unreachable_host(TimePoint now);
  // The host that most others report as unreachable, and the one with which it has most reports in common. Ranks also
  // report what they were told by others, so two hosts that report each other go before. Of equal ones the last in the
  // list of hosts.
  std::pair<std::string, std::string> hosts_apart() const;
  bool can_begin_without(const std::string& host) const;
  void forget_failed_epochs() {
    failed_epochs_ = 0;
    unreachable_.clear();
  }
  // The running epoch is over; its processes are expected to arrive.
  void gather(const std::string& cause, TimePoint now);
  void end_job(const std::string& failure, bool early = false);
  void note_failure(const Process& process, const std::string& cause, TimePoint now);
  void cool_down(const std::string& host, TimePoint now);

  template <typename Predicate>
  int count(Predicate predicate) const {
    return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                          [&](const auto& entry) { return predicate(entry.second); }));
  }
  int count_at(Place place) const {
    return count([place](const Process& process) { return process.place == place; });
  }
  // On the host, without those that were given up.
  int occupied_slots(const std::string& host) const;
  int free_slot(const std::string& host) const;
  bool may_start_on(const std::string& name, const Host& host) const;

  // The processes that the next epoch can have: those of the last one in their order, then newcomers.
  std::vector<int> candidates() const;
  void note_first_failure() {
    if (is_first() && first_tries_ == 0) first_tries_ = next_process_;
  }
  // Whether all processes that were started before the first failure have failed, and no later one waits.
  bool all_have_failed() const;
  // Whether a process that leaves has to take part once more, because only such processes have the job's state.
  bool state_is_leaving() const;
  bool state_is_lost() const;
  bool all_hosts_are_preempted() const;
  int starting() const {
    return count([](const Process& process) { return process.place == Place::starting && !process.leaves; });
  }
  int staying() const;               // of the running epoch
  int places_for_newcomers() const;  // in the next epoch, if those stay who are not to leave
  bool newcomers_wait() const;       // and can join, which has not been announced yet
  bool can_begin() const;
  bool is_first() const { return epoch_ == 0; }
  bool may_not_change() const { return options_.reset_limit && epoch_ > *options_.reset_limit && !ends_early_; }
  int fewest() const { return ends_early_ ? 1 : options_.min_np; }  // processes of an epoch

  MembershipOptions options_;
  Phase phase_ = Phase::gathering;
  int epoch_ = 0;
  TimePoint gathering_since_;
  std::vector<int> members_;     // of the last epoch, by rank; some may have ended
  bool announced_ = false;       // a change, to the running epoch
  TimePoint settling_until_{};   // for newcomers that wait
  bool finishing_ = false;       // a process has finished: the job gets no newcomers any more
  bool ends_early_ = false;      // end_early() was called
  bool has_left_early_ = false;  // a process that had the state, which it has saved
  int first_tries_ = 0;          // before the first epoch: processes started until the first failure; 0: none failed
  std::string last_failure_;
  TimePoint began_{};      // the last epoch
  int failed_epochs_ = 0;  // in succession, after which all their processes came back
  std::vector<std::pair<std::string, std::string>> unreachable_;  // reported then, each once: from this host, that one
  std::string epoch_failure_;                                     // the last failure in the last epoch that has begun
  std::map<int, Process> processes_;                              // that live
  std::map<std::string, Host> hosts_;
  int next_process_ = 0;
  std::vector<MembershipAction> actions_;
};

}  // namespace hvd::launcher
