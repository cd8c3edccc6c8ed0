// The parent's side of its agents: starts them, accepts their connections, keeps their leases, and routes messages
// between them and its owner. hvdrun has one for its agents; in a job of many hosts, agents have one for theirs. Main
// thread only.
//
// A message names its source or target host. The route to a host is learnt from the first message of that host, which
// arrives through the agent that the host is behind.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/loop/event_loop.h"
#include "launcher/remote/agent_listener.h"
#include "launcher/remote/agent_starter.h"
#include "launcher/remote/link.h"
#include "launcher/remote/link_lease.h"
#include "launcher/remote/store_relay.h"

namespace hvd::launcher {

class Subtree {
 public:
  struct Options {
    Certificate certificate;
    std::vector<std::string> addresses;   // of this host, which agents try in turn
    std::vector<std::string> interfaces;  // that agents may use
    Duration lease{}, grace{}, start_timeout{};
  };
  struct Child {
    int host = 0;
    std::string name;
    std::string start_command;  // a shell command; it starts all consecutive children that have the same one
  };
  struct Listener {
    // A message of a host below. Beats, farewells and store requests are handled here.
    std::function<void(const proto::FromAgent&)> received;
    // The host is lost; no further messages follow. Not called after its farewell.
    std::function<void(int host, const std::string& cause)> lost;
    // A child process was started that starts an agent.
    std::function<void(pid_t)> started;
    // A line for the user.
    std::function<void(const std::string& line)> complaint;
  };

  // `store` answers the agents' requests to the job's store; it must outlive this object.
  Subtree(EventLoop& loop, const SignalSource& signals, StoreSource& store, Options options, Listener listener);
  ~Subtree();
  Subtree(const Subtree&) = delete;
  Subtree& operator=(const Subtree&) = delete;

  void start(const std::vector<Child>& children);
  // Sends to message.host(); does nothing if that host is lost.
  void send(const proto::ToAgent& message);
  void send_to_all(proto::ToAgent message);
  // Whether all messages are sent.
  bool all_sent() const;
  void pause(bool on);
  // Called after SIGCHLD; returns whether the process was one that had started an agent.
  bool child_ended(pid_t pid, ExitStatus status) { return starter_.child_ended(pid, status); }
  // Whether no agent is connected and no start command is running.
  bool empty() const { return links_.empty() && starter_.empty(); }

 private:
  struct Waiting {  // a child that has not attached yet
    Child child;
    int first;  // the first host of its start command
    Deadline deadline;
    std::string last_words;  // the last output line of its start command
  };
  struct Attached {
    std::unique_ptr<LinkToAgent> link;
    LinkLease lease;
    bool has_left = false;     // it has sent its farewell
    std::vector<int> hosts{};  // the hosts behind it, beginning with the agent's own
    std::unique_ptr<StoreBranch> store{};
  };

  void run_command(const std::vector<Child>& children);
  void on_attached(std::unique_ptr<LinkToAgent> link);
  void on_message(Attached& from, const proto::FromAgent& message);
  void on_lost(Attached& from, const std::string& cause);
  void on_starter_ended(int host, ExitStatus status);
  void never_came(int host, const std::string& cause);
  void on_time();
  void set_timer();

  StoreSource& store_;
  const Options options_;
  const Listener listener_;
  AgentStarter starter_;
  AgentListener door_;
  Timer timer_;
  std::map<int, Waiting> waiting_;    // by host
  std::map<int, std::string> names_;  // of hosts that were started here
  std::vector<std::unique_ptr<Attached>> links_;
  std::map<int, Attached*> routes_;  // by host
};

}  // namespace hvd::launcher
