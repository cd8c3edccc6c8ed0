// The state machine of a job's end: decides which rank failed first, which signals to send and when, and hvdrun's exit
// code; and the report that hvdrun prints last. Pure; time is an argument.
//
//   running -> grace -> terminating -> killing
//
// The first failure (or Ctrl-C, or the end of the last rank while its processes are left) starts the grace period, in
// which the other ranks may end on their own. Then SIGTERM is due, SIGKILL two seconds later, and another five seconds
// later JobEnd gives up. The caller sends the signals, and stops asking when nothing of the job is left.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/flight/flight_reader.h"
#include "launcher/processes/child_process.h"

namespace hvd::launcher {

inline constexpr Duration kTerminationTime = 2s;
inline constexpr Duration kKillTime = 5s;
inline constexpr Duration kCulpritTime = 10s;  // the grace period is at least this long while a culprit has not ended
inline constexpr int kTimedOutCode = 124;      // hvdrun's exit code after --timeout, like that of timeout(1)
inline constexpr int kEndedEarlyCode = 75;     // EX_TEMPFAIL of sysexits.h: the job can be started again

struct RankEnd {
  ExitStatus status;
  JobEnding said{};     // what the rank reported before it ended
  int signal_sent = 0;  // SIGTERM or SIGKILL if hvdrun had sent it by then
  bool lost = false;    // with its host: its exit status is unknown

  // Exited with code 0, as by _exit(0), while still in the job. No failure unless another rank needed it.
  bool ended_without_shutdown() const;
};

struct LostHost {
  std::string name;
  std::vector<int> ranks;
  std::vector<int> servers{};  // that ran
  std::string cause;
};

// How the ranks of a job have ended, and which of them is the cause.
class RankEnds {
 public:
  explicit RankEnds(int size);

  // A process of an elastic job was started; its number is the next.
  void add();

  // Called once per rank.
  void set(int rank, RankEnd end);
  // By rank; empty: it has not ended.
  const std::vector<std::optional<RankEnd>>& all() const;
  const RankEnd& of(int rank) const;
  bool has_ended(int rank) const;
  bool all_have_ended() const;
  // Of at least one rank, and none was lost.
  bool all_are_ok() const;

  // The rank has ended with a failure; `by_somebody`: it was killed by a signal from outside the job during the grace
  // period. Called in the order in which failures are reported.
  void blame(int rank, bool by_somebody);
  // Whether no rank was blamed.
  bool blameless() const;

  // The rank that failed first: of the ranks that were blamed, the first one that did not report, before it ended, that
  // the job had ended for it because of another rank, which has failed, too. A rank that others name as the culprit and
  // that ended with exit code 0, but without shutdown, has failed. If the rank reported nothing (its program does not
  // use hvd) and exited with an error, a rank that was killed by somebody takes precedence: the error is most likely
  // the consequence (except SIGABRT and SIGPIPE, which may be a reaction to a lost peer). Requires a blamed rank.
  int cause() const;
  // Whether a blamed rank names a culprit that has not ended.
  bool awaits_culprit() const;

 private:
  bool is_cause(int rank) const;
  // The cause of the failure of `rank`: the rank itself, or the culprit that it names, if that ended without shutdown.
  // Empty: `rank` does not identify the cause.
  std::optional<int> cause_seen_by(int rank) const;
  // The culprit that the rank names, if it is a valid other rank.
  std::optional<int> named_by(int rank) const;

  std::vector<std::optional<RankEnd>> ends_;
  int remaining_;
  std::vector<int> failures_;           // failed ranks, in the order in which they were reported
  std::optional<int> killed_in_grace_;  // the first rank killed by somebody
};

class JobEnd {
 public:
  // Why the job ends. The first reason is kept, except that a lost host takes precedence over a rank (host_lost()).
  enum class Reason {
    none,
    rank_failed,
    interrupted,  // by a signal
    output_closed,
    timed_out,  // --timeout
    start_failed,
    host_lost,
    server_failed,
    finished,     // an elastic job has
    ended_early,  // an elastic job, before it had finished
    too_few       // processes are left in an elastic job
  };

  JobEnd(int size, Duration grace);

  // Events, as the caller observes them.
  void rank_ended(int rank, ExitStatus status, const JobEnding& said, TimePoint now);
  // An elastic job goes on when a process ends; its processes are numbered as they are started. Once elastic_over() was
  // called, or the job ends for another reason, their ends are reported by rank_ended().
  void process_started();
  void process_ended(int process, RankEnd end);
  // What is left is to end. `culprit`: the process whose failure made the job fail, if it was that of a process.
  void elastic_over(bool has_failed, std::optional<int> culprit, TimePoint now);
  // The processes have left in order before the job had finished, as they were told.
  void ended_early(TimePoint now);
  // SIGINT, SIGTERM, ... was received, and is to be forwarded. A second SIGINT makes SIGKILL due at once. Returns false
  // for one that is only the previous one again, and is to be ignored: `timeout` signals hvdrun, and then its whole
  // process group; some wrappers forward the Ctrl-C that the terminal has sent to hvdrun, too.
  bool interrupted(int signal, TimePoint now);
  // The reader of hvdrun's output has closed it (`| head`): no grace period.
  void output_closed(TimePoint now);
  // The job has reached --timeout: no grace period, or the end of it.
  void timed_out(TimePoint now);
  // A rank could not be started: no grace period, no SIGTERM. `exit_code` becomes hvdrun's.
  void start_failed(int exit_code, TimePoint now);
  // A server has ended, and is not started again; its exit code becomes hvdrun's.
  void server_failed(ExitStatus status, TimePoint now);
  // A host is unreachable, and with it those of its ranks that had not ended. During the grace period it takes
  // precedence over a rank that exited with an error, as explained at RankEnds::cause(). Returns whether that is a
  // failure: not if all of its ranks had ended, and no server ran there.
  bool host_lost(const LostHost& host, TimePoint now);

  // The signal to send now to all processes that are left; returns each signal once.
  std::optional<int> signal_due(TimePoint now);
  // When the result of signal_due() or gave_up() changes next. Empty: not before the next event.
  std::optional<Deadline> next_deadline() const;

  // Whether the job goes on: nothing has failed, and not all ranks have ended.
  bool is_running() const;
  Reason reason() const;
  bool all_ranks_ended() const;
  // Processes are left although SIGKILL was sent kKillTime ago.
  bool gave_up() const;
  // See RankEnds::cause().
  std::optional<int> first_failed() const;
  // The hosts that were lost while they had running ranks, in the order of their loss.
  const std::vector<LostHost>& lost_hosts() const;
  // The signal that ended the job, if that was the reason; else 0.
  int interrupting_signal() const;
  const std::vector<std::optional<RankEnd>>& ends() const;
  int exit_code() const;

 private:
  enum class Stage { running, grace, terminating, killing };
  static constexpr Duration kOneSignal = std::chrono::milliseconds(100);  // nobody presses Ctrl-C twice in that time

  void begin(Stage stage, Reason reason, Deadline deadline);
  Deadline stage_end() const;

  const Duration grace_;
  RankEnds ends_;
  Stage stage_ = Stage::running;
  Reason reason_ = Reason::none;
  Deadline stage_deadline_{};  // unless running: when the next stage is due, or later (stage_end())
  TimePoint failed_at_{};      // time of the first failure
  bool hurried_ = false;       // --timeout has ended the grace period
  std::optional<int> first_failed_;
  std::vector<LostHost> lost_hosts_;
  int other_exit_code_ = 1;  // of what could not be started, or of the server that failed
  int interrupting_signal_ = 0;
  int last_forwarded_ = 0;
  TimePoint forwarded_at_{};
  int keyboard_interrupts_ = 0;
  int signal_sent_ = 0;
  bool gave_up_ = false;
};

inline constexpr std::size_t kReportedLines = 20;

struct Failure {
  int rank = 0;
  std::string host{};                   // its name; empty: the job has only one host
  bool is_process = false;              // of an elastic job: `rank` is the process's number
  std::optional<RankEnd> server_end{};  // a server failed: `rank` is its number among them
  int pid = 0;
  Duration age{};                         // of the job when the rank ended
  std::string stream = "standard error";  // the stream that last_lines are from
  std::vector<std::string> last_lines{};
};

// The cause of the failure as sent to the other ranks: "rank 2 on h2 has failed: killed by SIGKILL ...",
// "rank 2 on h2 raised ...", "host h2 (ranks 4-7) is lost: ...".
std::string rank_failure(int rank, const std::string& host, const RankEnd& end);
std::string failure_of(const std::string& name, const RankEnd& end);
std::string host_loss(const LostHost& host);

// `ends` is indexed by rank; empty means a process that even SIGKILL did not end.
std::string failure_report(const Failure& failure, const std::vector<std::optional<RankEnd>>& ends);

// "hvdrun: host h2 (ranks 4-7) is lost: ..."
std::string lost_host_report(const std::vector<LostHost>& lost, const std::vector<std::optional<RankEnd>>& ends);

// "hvdrun: ended by SIGINT; ranks 0-3 exited with code 1"
std::string interruption_report(int signal, const std::vector<std::optional<RankEnd>>& ends,
                                bool are_processes = false);

// "hvdrun: the job has reached its --timeout; ranks 0-3 killed by SIGTERM"
std::string timeout_report(const std::vector<std::optional<RankEnd>>& ends, bool are_processes = false);

// Formats ascending numbers: "rank 4", "ranks 0-2, 5"; "processes 0-2, 5".
std::string list_ranks(const std::vector<int>& ranks, bool are_processes = false);

}  // namespace hvd::launcher
