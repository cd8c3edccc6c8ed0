// How a job comes to its end: which rank is to blame, who is told what and when, what hvdrun's exit code is. Pure;
// time is an argument.
//
//   running -> grace -> terminating -> killing
//
// The first failure (or Ctrl-C, or the end of the last rank while processes of it are left) starts the grace period,
// in which the others end by themselves. Then SIGTERM is due, SIGKILL two seconds later, and another five seconds
// later nothing more is expected. The caller sends the signals; it stops asking when nothing of the job is left.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/flight/flight_reader.h"
#include "launcher/processes/exit_status.h"

namespace hvd::launcher {

inline constexpr Duration kTerminationTime = 2s;
inline constexpr Duration kKillTime = 5s;
inline constexpr Duration kCulpritTime = 10s;  // instead of a shorter grace, until a rank that others name has ended
inline constexpr int kTimedOutCode = 124;      // hvdrun's exit code then: as that of timeout(1)

struct RankEnd {
  ExitStatus status;
  JobEnding said{};     // before it ended
  int signal_sent = 0;  // SIGTERM or SIGKILL if hvdrun had sent it by then
  bool lost = false;    // with its host: nobody knows how it ended

  // With exit code 0, as by _exit(0), while it was still in the job. No failure unless another rank needed it.
  bool ended_without_shutdown() const { return !lost && status.ok() && said.in_job; }
};

struct LostHost {
  std::string name;
  std::vector<int> ranks;
  std::string cause;
};

class JobEnd {
 public:
  JobEnd(int size, Duration grace) : grace_(grace), ends_(static_cast<std::size_t>(size)), remaining_(size) {}

  // What happened.
  void rank_ended(int rank, ExitStatus status, const JobEnding& said, TimePoint now);
  // SIGINT, SIGTERM, ... came and was forwarded. A second SIGINT makes SIGKILL due at once.
  void interrupted(int signal, TimePoint now);
  // Nobody reads hvdrun's output any more (`| head`): no grace.
  void output_closed(TimePoint now);
  // The time that the user gave the job is over: no grace, or none any more.
  void timed_out(TimePoint now);
  // A rank could not be started: no grace, no SIGTERM. `exit_code` is hvdrun's then.
  void start_failed(int exit_code, TimePoint now);
  // A host is out of reach, and with it those of its ranks that had not ended. During the grace period it takes
  // precedence over a rank that exited with an error, as below.
  void host_lost(LostHost host, TimePoint now);

  // The signal to be sent to everything that is left, once each.
  std::optional<int> signal_due(TimePoint now);
  // When signal_due() or gave_up() has something new to say. Empty: not before something happens.
  std::optional<Deadline> next_deadline() const;

  bool all_ranks_ended() const { return remaining_ == 0; }
  bool killing() const { return stage_ == Stage::killing; }
  // Even SIGKILL has not helped.
  bool gave_up() const { return gave_up_; }

  // The rank that failed first: of those that have ended with a failure, the first one that did not say, before it
  // ended, that the job had ended for it because of another rank, which has failed, too. A rank that others name and
  // that ended with exit code 0, but without shutdown, has failed. Where a rank says nothing (a program that does not
  // use hvd), one that was killed by somebody's signal during the grace period takes precedence over it if it exited
  // with an error, which is most likely the consequence then. (Except for SIGABRT and SIGPIPE, with which a rank may
  // itself react to a lost peer.)
  std::optional<int> first_failed() const { return first_failed_; }
  // Those that were lost while the job ran, in the order of their loss.
  const std::vector<LostHost>& lost_hosts() const { return lost_hosts_; }
  // Whether the job was ended because its time was over.
  bool has_timed_out() const { return reason_ == Reason::timed_out; }
  // The signal that ended the job, if no rank had failed before.
  int interrupting_signal() const { return interrupting_signal_; }
  const std::vector<std::optional<RankEnd>>& ends() const { return ends_; }
  int exit_code() const;

 private:
  enum class Stage { running, grace, terminating, killing };
  enum class Reason { none, rank_failed, interrupted, output_closed, timed_out, start_failed, host_lost };

  void begin(Stage stage, Reason reason, Deadline deadline);
  const RankEnd& end_of(int rank) const { return *ends_[static_cast<std::size_t>(rank)]; }
  bool has_failed(const RankEnd& end) const;
  bool is_cause(int rank) const;
  // The rank that has failed first if `rank`, which has failed, tells of it: itself, or one that it names and that
  // ended without shutdown. Empty: another one tells.
  std::optional<int> cause_seen_by(int rank) const;
  int cause() const;
  // Whom the rank names, if there is such a rank.
  std::optional<int> named_by(int rank) const;
  bool awaits_culprit() const;
  Deadline stage_end() const;
  void blame(int rank, TimePoint now);
  int failed_rank_code() const;

  const Duration grace_;
  std::vector<std::optional<RankEnd>> ends_;
  int remaining_;
  Stage stage_ = Stage::running;
  Reason reason_ = Reason::none;
  Deadline stage_deadline_{};           // unless running: when the next stage is due, or later (stage_end())
  std::vector<int> failures_;           // in the order in which they were heard of
  TimePoint failed_at_{};               // the first of them
  bool hurried_ = false;                // no grace any more
  std::optional<int> killed_in_grace_;  // by somebody
  std::optional<int> first_failed_;
  std::vector<LostHost> lost_hosts_;
  int start_exit_code_ = 1;
  int interrupting_signal_ = 0;
  int last_forwarded_ = 0;
  int keyboard_interrupts_ = 0;
  int signal_sent_ = 0;
  bool gave_up_ = false;
};

}  // namespace hvd::launcher
