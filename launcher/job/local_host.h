// The Host for this machine: starts its ranks through the supervisor, reads their output, and ends what they leave
// behind.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/net/socket.h"
#include "launcher/job/host.h"
#include "launcher/job/rank_memory.h"
#include "launcher/membership/polled_script.h"
#include "launcher/output/rank_pipes.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/event_loop.h"
#include "launcher/processes/supervisor.h"

namespace hvd::launcher {

// Reserves a TCP port of this host for a server that a rank starts later, so that no other process gets it by chance.
// The port is bound with SO_REUSEADDR, without listen(): the kernel skips it when it chooses ports, connections to it
// are refused, and a server that binds it by number with SO_REUSEADDR, as servers do, gets it.
class ReservedPort {
 public:
  // Throws Error if no port can be bound.
  ReservedPort();
  std::uint16_t number() const;

 private:
  FileDescriptor socket_;
  std::uint16_t number_;
};

class LocalHost : public Host {
 public:
  // Ranks that read standard input inherit `input`, which start() closes. If it is empty, they are fed by
  // write_input().
  LocalHost(EventLoop& loop, const SignalSource& signals, Supervisor& supervisor, HostListener& listener, int number,
            FileDescriptor input);
  ~LocalHost() override;

  void start(const HostPlan& plan) override;
  void signal_ranks(int signal) override;
  void signal_all(int signal) override;
  void write_input(int rank, std::string_view bytes) override;
  void hold(Stream stream, bool on) override;
  void query_status(std::uint64_t query_id, bool with_stacks) override;
  std::vector<pid_t> list_left() const override;

  // Called after SIGCHLD. Children other than the supervisor are passed to `others`.
  void collect(const std::function<void(pid_t, ExitStatus)>& others);

 private:
  struct Pipes {
    pid_t pid = -1;                              // of the process
    std::string name;                            // for the user
    std::unique_ptr<InputPipe> input;            // null: write_input() does not feed the rank
    std::unique_ptr<OutputPipe> output, errors;  // errors: null if merged
  };

  void start_rank_of(const HostPlan& plan, const RankPlan& rank, ChildStart& start, int nothing);
  // Pending signals are handled first: a rank that was ended by the same signal has not failed.
  void on_supervisor();
  void take_reports();
  void watch_preemption(const std::string& script);
  // In an elastic job: kills processes that have been stopped for too long.
  void look_for_stopped();
  void on_supervisor_lost(ExitStatus status);
  void look_what_is_left();
  void close_pipes();

  EventLoop& loop_;
  const SignalSource& signals_;
  Supervisor& supervisor_;
  HostListener& listener_;
  const int number_;
  FileDescriptor input_;
  RankMemories memories_;
  std::map<int, Pipes> pipes_;  // by rank
  bool is_elastic_ = false;
  Duration stopped_limit_{};                // zero: none
  std::map<int, TimePoint> stopped_since_;  // by rank
  Timer stopped_timer_;
  std::unique_ptr<PreemptionWatch> preemption_;  // null: there is no script
  bool started_ = false;
  bool is_suspended_ = false;  // by Ctrl-Z: processes are stopped on purpose
  bool nothing_left_ = false;
};

}  // namespace hvd::launcher
