// hvdrun on one host of a job: executes the commands of its parent there, and reports events to it.
//
// When the parent is gone, or has been silent for the lease, the agent ends its ranks and then exits. Runs on the main
// thread, in one event loop; gRPC has its own threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/log.h"
#include "core/bootstrap/store_server.h"
#include "launcher/job/host.h"
#include "launcher/job/local_host.h"
#include "launcher/processes/event_loop.h"
#include "launcher/processes/keeper.h"
#include "launcher/remote/link.h"
#include "launcher/remote/store_relay.h"
#include "launcher/remote/subtree.h"
#include "launcher/watch/job_end.h"

namespace hvd::launcher {

// This host as its parent sees it: performs the parent's commands, and reports the host's events. The counterpart of
// AgentHost.
class ReportingHost : private HostListener {
 public:
  // `send` sends a message to the parent; it does nothing once the parent is lost.
  ReportingHost(EventLoop& loop, const SignalSource& signals, Keeper& keeper, int number,
                std::function<void(proto::FromAgent)> send);

  // Completes the plan with what is known only on this host. `store`: the address that its ranks connect to.
  void start(HostPlan plan, const std::string& store);
  void cannot_start(int rank, const std::string& cause, int exit_code);
  // Returns false if the message is not a command for the host.
  bool perform(const proto::ToAgent& command);
  void signal_all(int signal);
  // The parent is lost, and the ranks' output with it; it is still read, so that they do not block and can end.
  void abandon_output();
  // See LocalHost.
  void collect(const std::function<void(pid_t, ExitStatus)>& others) { host_.collect(others); }

  bool was_started() const { return started_; }
  // No process of the job is left here, or none was started.
  bool is_idle() const { return !started_ || nothing_left_; }
  // The ranks are gone with the keeper: the parent sends nothing more for this host.
  bool is_lost() const { return lost_; }

 private:
  void rank_started(int rank, pid_t pid) override;
  void rank_not_started(int rank, const std::string& cause, int exit_code) override;
  void rank_wrote(int rank, Stream stream, std::string_view bytes) override;
  void input_taken(int rank) override;
  void rank_ended(int rank, ExitStatus status, const JobEnding& said) override;
  void nothing_left(int) override;
  void host_lost(int host, const std::string& cause) override;
  void complaint(const std::string& line) override;
  void statuses(int host, std::uint64_t question, std::vector<RankStatus> statuses) override;
  void initialized(int host) override;
  void stalled(int host, bool on) override;

  const std::function<void(proto::FromAgent)> send_;
  LocalHost host_;
  bool started_ = false, nothing_left_ = false, lost_ = false, is_abandoned_ = false;
  std::size_t in_flight_[2] = {0, 0};  // per stream: bytes sent to the parent and not yet acknowledged
};

class Agent {
 public:
  // Connects to the parent. Throws Error if that fails.
  Agent(const proto::Bootstrap& bootstrap, SignalSource& signals, Keeper& keeper);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Returns the exit code when the parent has dismissed the agent or is lost, and nothing is left to end.
  int run();

 private:
  void say_hello();
  void send(proto::FromAgent message);
  void on_message(const proto::ToAgent& message);
  void start_children(const proto::Children& children);
  void start_ranks(const proto::Start& start);
  void on_parent_lost(const std::string& cause);
  void on_signals();
  void on_time();
  void set_timer();
  bool finished() const;

  const proto::Bootstrap bootstrap_;
  const AgentOptions options_;
  SignalSource& signals_;
  Keeper& keeper_;
  EventLoop loop_;
  const Log log_;
  std::string local_address_, parent_address_;
  std::optional<ReservedPort> reserved_port_;  // empty: rank 0 runs on another host
  std::unique_ptr<LinkToParent> parent_;       // null: lost
  LinkLease lease_;
  Timer timer_;
  StoreRelay store_;
  std::unique_ptr<Subtree> subtree_;         // the agents that this one has started; null: none
  std::unique_ptr<StoreServer> server_;  // the ranks' connections to the store
  ReportingHost host_;
  bool dismissed_ = false;
  std::optional<JobEnd> end_;  // after the loss of the parent: ends this host's ranks
};

}  // namespace hvd::launcher
