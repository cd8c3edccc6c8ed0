// The parent's side of agents: starts them, hears when they come, keeps their leases, and passes messages on between
// them and whoever is above. hvdrun has one for its agents, and in a job of many hosts agents have one for theirs.
//
// A message names the host that it is from or for. Which agent a host is behind is learnt from what comes from there:
// a host's first message comes from below. Main thread only.
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
    std::vector<std::string> addresses;   // of this host, at which agents are to try to reach it
    std::vector<std::string> interfaces;  // what they may use
    Duration lease{}, grace{}, start_timeout{};
  };
  struct Child {
    int host = 0;
    std::string name;
    std::string
        start_command;  // a shell's; several that follow each other with the same one are started by it together
  };
  struct Listener {
    // Of hosts below; beats, farewells and what is for the store are not passed on.
    std::function<void(const proto::FromAgent&)> received;
    // Nothing more comes from there. Not after its farewell.
    std::function<void(int host, const std::string& cause)> lost;
    // A process of ours that is to start an agent.
    std::function<void(pid_t)> started;
    // A line for the user.
    std::function<void(const std::string& line)> complaint;
  };

  // What the agents ask of the job's store, `store` answers; it must outlive this.
  Subtree(EventLoop& loop, const SignalSource& signals, StoreSource& store, Options options, Listener listener);
  ~Subtree();
  Subtree(const Subtree&) = delete;
  Subtree& operator=(const Subtree&) = delete;

  void start(const std::vector<Child>& children);
  // To message.host(), or to nobody if that is lost.
  void send(const proto::ToAgent& message);
  void send_to_all(proto::ToAgent message);
  // Whether everything is on its way.
  bool all_sent() const;
  void pause(bool on);
  // After SIGCHLD: whether the process was one that had started an agent.
  bool child_ended(pid_t pid, ExitStatus status) { return starter_.child_ended(pid, status); }
  // No agent is connected and nothing that has started one is left.
  bool empty() const { return links_.empty() && starter_.empty(); }

 private:
  struct Waiting {  // a child that has not come yet
    Child child;
    int first;  // of those that were started with it
    Deadline deadline;
    std::string last_words;  // of what was to start it
  };
  struct Attached {
    std::unique_ptr<LinkToAgent> link;
    LinkLease lease;
    bool has_left = false;     // said farewell
    std::vector<int> hosts{};  // behind it; the first is the agent's own
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
