// The interface between a job and one of its hosts: Host receives commands, HostListener receives events. Main thread
// only. LocalHost is this machine; AgentHost (launcher/remote) is reached through an agent. Nothing here blocks, except
// that LocalHost::start() waits for the supervisor, up to 30 s for each rank.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/flight/flight_reader.h"
#include "launcher/output/output_stream.h"
#include "launcher/plan/host_plan.h"
#include "launcher/processes/child_process.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

// Receives the events of a host, in this order for each rank. Implemented by the job, and by an agent for its parent.
// `rank` is also the number of a server, see RankPlan.
class HostListener {
 public:
  virtual ~HostListener() = default;
  virtual void rank_started(int rank, pid_t pid) = 0;
  // No further rank of this host is started. `exit_code`: as a shell's, or 1 if it is not the program's fault.
  virtual void rank_not_started(int rank, const std::string& cause, int exit_code) = 0;
  // Empty `bytes`: the end of the stream, once per stream of each started rank; it may follow the rank's end.
  virtual void rank_wrote(int rank, Stream stream, std::string_view bytes) = 0;
  // The rank has taken the last piece of write_input().
  virtual void input_consumed(int rank) = 0;
  // `said`: the cause for which the job had ended for the rank by then, if it has reported one.
  virtual void rank_ended(int rank, ExitStatus status, const JobEnding& said) = 0;
  // No process of the job is left on this host; in an elastic job others may follow.
  virtual void nothing_left(int host) = 0;
  // The host is unreachable; no further events follow, and its ranks' streams have ended.
  virtual void host_lost(int host, const std::string& cause) = 0;
  // The host is about to be taken away. Only in an elastic job.
  virtual void host_preempted(int) {}
  // A line for the user.
  virtual void warning(const std::string& line) = 0;
  // The answer to query_status(), for all ranks of this host that have a flight recorder, including dead ones.
  virtual void statuses(int host, std::uint64_t query_id, std::vector<RankStatus> statuses) = 0;
  // Only if the plan is verbose: all ranks of this host have completed init together with all ranks of the job.
  virtual void initialized(int host) = 0;
  // `on`: ranks of this host are stalled; repeated at growing intervals (1, 2, 4, ... s). Else none is any more.
  virtual void stalled(int host, bool on) = 0;
};

class Host {
 public:
  virtual ~Host() = default;

  // Starts the plan's ranks and servers. Called once; again for a server, and in an elastic job for further processes.
  virtual void start(const HostPlan& plan) = 0;
  // Signals the process groups of the ranks that still run.
  virtual void signal_ranks(int signal) = 0;
  // Signals all descendants of the ranks, too; a second SIGKILL also reaches processes that the first one has orphaned.
  virtual void signal_all(int signal) = 0;
  // Sends input to a rank that has not inherited hvdrun's; empty: the end. Call it again only after input_consumed().
  virtual void write_input(int rank, std::string_view bytes) = 0;
  // While the stream is held, it is not read, and ranks may block in their writes.
  virtual void hold(Stream stream, bool on) = 0;
  // Asks for the status of its ranks. The answer carries `query_id`, and may come during the call, late, or never.
  virtual void query_status(std::uint64_t query_id, bool with_stacks) = 0;
  // The processes that even SIGKILL has not ended, as far as known.
  virtual std::vector<pid_t> list_left() const = 0;
};

}  // namespace hvd::launcher
