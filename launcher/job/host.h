// One host of a job, as the job sees it: what it is told, and what it tells. Main thread only; nothing here blocks.
//
// LocalHost is this machine; launcher/remote has those that are reached through an agent.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/flight/flight_reader.h"
#include "launcher/plan/job_environment.h"
#include "launcher/processes/exit_status.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

enum class Stream { output, errors };

struct ProgramPlan {
  std::string file;                    // empty: to be looked for on the host
  std::vector<std::string> arguments;  // with the name as typed first
  Environment environment;             // of hvdrun
  Environment exports;                 // what was said of it: -x, -mca; wins
  std::string working_directory;       // empty: hvdrun's own
};

// As a program gets it, but for the rank's place.
inline Environment with_exports(const ProgramPlan& program) {
  Environment environment = program.environment;
  for (const auto& [name, value] : program.exports) environment[name] = value;
  return environment;
}

struct RankPlan {
  RankPlace place;
  std::size_t program = 0;     // in the host's list
  std::vector<int> cpus{};     // the numbers of those it is bound to; empty: it is not
  std::string visible_gpus{};  // for CUDA_VISIBLE_DEVICES; empty: as it is
  bool reads_input = false;    // hvdrun's standard input
};

struct HostPlan {
  std::string name;
  std::vector<ProgramPlan> programs;
  std::vector<RankPlan> ranks;  // ascending
  HostRendezvous rendezvous;
  bool merge_errors = false;  // standard error goes where standard output goes
  bool verbose = false;
};

// Who starts a job of one host at `host`, hears of it what follows, in this order for each rank.
class HostListener {
 public:
  virtual ~HostListener() = default;
  virtual void rank_started(int rank, pid_t pid) = 0;
  // No rank of this host is started after it. `exit_code`: as a shell's, or 1 if it is not the program's fault.
  virtual void rank_not_started(int rank, const std::string& cause, int exit_code) = 0;
  // No bytes: the stream's end, once for each stream of each rank that was started; also after the rank's own end.
  virtual void rank_wrote(int rank, Stream stream, std::string_view bytes) = 0;
  // The rank has taken what write_input() had for it last.
  virtual void input_taken(int rank) = 0;
  // `said`: why the job had ended for it by then, as far as it has told.
  virtual void rank_ended(int rank, ExitStatus status, const JobEnding& said) = 0;
  // No process is left of what was started at this host.
  virtual void nothing_left(int host) = 0;
  // The host is out of reach; nothing more is heard of it, and its ranks' streams have ended.
  virtual void host_lost(int host, const std::string& cause) = 0;
  // A line for the user.
  virtual void complaint(const std::string& line) = 0;
  // The answer to query_status(): of all ranks of this host that have a flight recorder, dead ones too.
  virtual void statuses(int host, std::uint64_t question, std::vector<RankStatus> statuses) = 0;
  // If the plan is verbose: all ranks of this host have been in init, and left it when all of the job were there.
  virtual void initialized(int host) = 0;
  // Ranks of this host are stalled, which is said after 1, 2, 4, ... seconds anew; or none is any more.
  virtual void stalled(int host, bool on) = 0;
};

class Host {
 public:
  virtual ~Host() = default;

  // Once.
  virtual void start(const HostPlan& plan) = 0;
  // To the process groups of the ranks that still run.
  virtual void signal_ranks(int signal) = 0;
  // To everything that the ranks have started, too; a second SIGKILL also to what the first one has orphaned.
  virtual void signal_all(int signal) = 0;
  // To a rank that reads hvdrun's standard input and does not have it for its own; none: its end. The next piece once
  // this one is taken.
  virtual void write_input(int rank, std::string_view bytes) = 0;
  // While the stream is held, its ranks may wait in their writes.
  virtual void hold(Stream stream, bool on) = 0;
  // What its ranks are doing; the stacks of those that run take a moment. `question` comes back with the answer, which
  // may come at once, late, or never.
  virtual void query_status(std::uint64_t question, bool with_stacks) = 0;
  // What even SIGKILL has not ended, as far as it is known.
  virtual std::vector<pid_t> list_left() const = 0;
};

}  // namespace hvd::launcher
