// The tree of agents: which host starts which, and the parent's side of its agents (Subtree). Main thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/output/output_stream.h"
#include "launcher/output/rank_pipes.h"
#include "launcher/plan/start_command.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/event_loop.h"
#include "launcher/remote/grpc_link.h"
#include "launcher/remote/link.h"
#include "launcher/remote/store_relay.h"

namespace hvd::launcher {

// Returns for each host the host whose agent starts its agent; -1: hvdrun does, for all in a job of up to 64 hosts. In
// a larger job each starts 32 agents at most, so that starting takes log32(hosts) sequential steps. Pure.
std::vector<int> agent_tree(int hosts);

inline constexpr const char* kLoopback = "127.0.0.1";

// An agent that is to be started.
struct ChildAgent {
  int host = 0;
  std::string name;
  std::string start_command;  // a shell command; it starts all consecutive children that have the same one
};

// The same for these agents, by host. Where one command starts several (srun), hvdrun starts all of them. Pure.
std::vector<int> agent_tree(const std::vector<ChildAgent>& agents);

// Where agents reach this process: this host's addresses on the networks that may be used; its loopback address if it
// has none. Throws InvalidArgument if there is no such network.
std::vector<std::string> addresses_for(const AgentOptions& agents);

// hvdrun has one for its agents; in a job of many hosts, agents have one for theirs. A message names its source or
// target host. The route to a host is learnt from the host's first message, by the agent through which it arrives.
class Subtree {
 public:
  struct Options {
    Certificate certificate;
    std::vector<std::string> addresses;  // of this host, which agents try in turn
    AgentOptions agents;
  };
  using Child = ChildAgent;
  struct Listener {
    // A message of a host below. Beats, farewells and store requests are handled here.
    std::function<void(const proto::FromAgent&)> received;
    // The host is lost; no further messages follow. Not called after its goodbye.
    std::function<void(int host, const std::string& cause)> lost;
    // A child process was started that starts an agent.
    std::function<void(pid_t)> started;
    // A line for the user.
    std::function<void(const std::string& line)> warning;
  };

  // `store` answers the agents' requests to the job's store; it must outlive this object.
  Subtree(EventLoop& loop, const SignalSource& signals, StoreSource& store, Options options, Listener listener);
  ~Subtree();  // kills the commands that still run

  void start(const std::vector<Child>& children);
  // Sends to message.host(); does nothing if that host is lost.
  void send(const proto::ToAgent& message);
  // Before this process stops itself, and when it continues: the leases do not expire meanwhile. Waits briefly until
  // the agents have been told.
  void pause(bool on);
  // Dismisses the agent of this host, which ends; its goodbye follows. Does nothing if the host is lost.
  void dismiss(int host);
  // The job has ended: dismisses the agents, and runs the loop until they and the commands that started them have
  // ended. `collect_children` is called after SIGCHLD; other signals are ignored.
  void dismiss(Deadline deadline, SignalSource& signals, const std::function<void()>& collect_children);
  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status);
  // Whether no agent is connected and no start command is running.
  bool empty() const;

 private:
  struct Waiting {  // a child that has not attached yet
    Child child;
    Deadline deadline;
    std::string last_words;  // the last output line of its start command
  };
  struct Attached {
    std::unique_ptr<LinkToAgent> link;
    LinkLease lease;
    int own_host = -1;
    bool has_left = false;     // it has sent its goodbye
    std::vector<int> hosts{};  // that are not lost: its own, and those behind it
    std::unique_ptr<StoreBranch> store{};
  };

  struct Command {  // that starts agents: ssh, srun, or hvdrun itself for this machine
    std::vector<int> hosts{};
    std::unique_ptr<OutputPipe> output{};
    LineSplitter lines{nullptr};
  };

  void send_to_all(proto::ToAgent message);
  // Whether all messages are sent.
  bool all_sent() const;
  void run_command(const std::vector<Child>& children);
  // Runs the children's command with `input` as its standard input. Throws Error if no process can be started.
  pid_t start_command(const std::vector<Child>& children, const std::string& input);
  // Each line is most likely an error of ssh.
  void on_output(pid_t pid, std::string_view bytes);
  void on_attached(std::unique_ptr<LinkToAgent> link);
  void on_message(Attached& from, const proto::FromAgent& message);
  void on_lost(Attached& from, const std::string& cause);
  // Kills its start command, too, if no other agent needs that: it may hang, or start an agent yet.
  void never_came(int host, const std::string& cause);
  void on_time();
  void set_timer();

  EventLoop& loop_;
  const SignalSource& signals_;
  StoreSource& store_;
  const Options options_;
  const Listener listener_;
  const rlimit open_files_ = raise_open_files();  // of the commands; this process has a connection for each agent
  std::map<pid_t, Command> commands_;             // that still run
  AgentListener agent_listener_;
  Timer timer_;
  std::map<int, Waiting> waiting_;    // by host
  std::map<int, std::string> names_;  // of hosts that were started here
  std::vector<std::unique_ptr<Attached>> links_;
  std::map<int, Attached*> routes_;  // by host
};

}  // namespace hvd::launcher
