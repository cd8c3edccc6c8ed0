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
// boundary. They all arrive again, and the next epoch begins once nobody of the last one is missing. It does not wait
// for processes that are still starting; those that have arrived by then join it. The first newcomer waits up to
// kNewcomerWait for others that have been started.
//
// Where two hosts cannot reach each other, epochs fail although nobody is lost (PartitionDetector). One of the two
// hosts is left out then: its processes are dismissed, and it cools down like a host on which processes fail.
//
// Processes of the last epoch keep their order and get the lowest ranks. So rank 0 always has the job's state, unless
// every process that had it is gone; then the job is over.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "launcher/membership/process_table.h"

namespace hvd::launcher {

// How long newcomers wait for others that are starting, so that each host or slot that is added does not cost the
// others an epoch.
constexpr Duration kNewcomerWait = 5s;

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

// The state of an elastic job: its processes and hosts, its phase, and what has failed. Changed in membership.cc alone.
struct ElasticJob {
  enum class Phase { gathering, running, over };

  MembershipOptions options;
  HostTable hosts;
  TimePoint gathering_since;
  ProcessTable processes{};
  PartitionDetector partition{};
  Phase phase = Phase::gathering;
  bool announced = false;           // a change, to the running epoch
  TimePoint newcomer_wait_until{};  // for newcomers that wait
  bool is_winding_down = false;     // a process has finished: the job gets no newcomers any more
  bool ends_early = false;          // Membership::end_early() was called
  bool has_left_early = false;      // a process that had the state, which it has saved
  int first_tries = 0;              // before the first epoch: processes started until the first failure; 0: none failed
  std::string last_failure{};
  std::string epoch_failure{};  // the last failure in the last epoch that has begun
  std::vector<MembershipAction> actions{};
  auto operator<=>(const ElasticJob&) const = default;

  bool running() const { return phase == Phase::running; }
  bool over() const { return phase == Phase::over; }
  bool is_first() const { return processes.epoch() == 0; }        // no epoch has begun yet
  int fewest() const { return ends_early ? 1 : options.min_np; }  // processes of an epoch
  bool may_not_change() const { return options.reset_limit && processes.epoch() > *options.reset_limit && !ends_early; }
  bool may_start_on(const std::string& name, const HostTable::Host& host) const;
  bool state_is_lost() const {
    return !is_first() && processes.count([](const ProcessTable::Process& process) { return process.has_state; }) == 0;
  }
  // Whether a process that leaves has to take part once more, because only such processes have the job's state.
  bool state_is_leaving() const;
  int places_for_newcomers() const;  // in the next epoch, if those stay who are not to leave
  bool newcomers_wait() const;       // and can join, which has not been announced yet
  // The processes that the next epoch can have: those of the last one in their order, then newcomers.
  std::vector<int> candidates() const;
  bool can_begin() const;

  // Begins the next epoch, or ends the job if it may not have another one.
  void begin(TimePoint now);
  // The running epoch is over; its processes are expected to arrive.
  void gather(const std::string& cause, TimePoint now);
  void end(const std::string& failure, bool early = false);
  void note_failure(const ProcessTable::Process& process, const std::string& cause, TimePoint now);
  void note_first_failure() {
    if (is_first() && first_tries == 0) first_tries = processes.started();
  }
};

class Membership {
 public:
  Membership(const MembershipOptions& options, TimePoint now)
      : job_{.options = options, .hosts = {options.cooldown_min, options.cooldown_max}, .gathering_since = now} {}

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
  void time_passed(TimePoint now);

  std::vector<MembershipAction> take_actions() { return std::exchange(job_.actions, {}); }
  std::optional<Deadline> next_deadline() const;

  bool running() const { return job_.running(); }
  bool over() const { return job_.over(); }
  bool ends_early() const { return job_.ends_early; }
  const ProcessTable& processes() const { return job_.processes; }
  // Processes that have been started, have not arrived yet, and would join the running epoch. 0 if none runs.
  int starting_newcomers() const;

  auto operator<=>(const Membership&) const = default;

 private:
  ElasticJob job_;
};

}  // namespace hvd::launcher
