// Decides on which host each parameter server of a job runs, and when one that has ended is started again: on its host
// while that is usable, else on the usable host with the fewest servers. A preempted host is usable only if all are
// preempted. Pure; time is an argument.
//
// A server that keeps failing is started at once, then after 50 ms, 100 ms, and so on up to a second, and given up
// after ten times in a row. One that has run for a minute begins anew.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/membership/process_table.h"

namespace hvd::launcher {

struct StartServer {
  int server = 0;
  int start = 0;  // how often it was started before
  std::string host;
  auto operator<=>(const StartServer&) const = default;
};

class ServerPlacement {
 public:
  static constexpr int kMaxFailures = 10;

  // No server is started before the hosts have `slots`, so that all hosts with which a job begins get their share.
  ServerPlacement(int servers, int slots);

  // All hosts that may be used now, with their slots.
  void hosts_changed(const std::vector<HostCount>& hosts);
  // The server runs there, without having been asked for.
  void started(int server, const std::string& host, TimePoint now);
  // The server has ended, and is wanted. Returns when it is started again; empty: it has failed too often.
  std::optional<TimePoint> ended(int server, TimePoint now);
  // A process has failed: the job may begin with fewer slots, so servers are started on the hosts there are.
  void process_failed();
  // The host is unreachable, with its servers, until hosts_changed() names it.
  void host_lost(const std::string& host, TimePoint now);
  // The host is about to be taken away: it is preempted until it is lost.
  void host_preempted(const std::string& host);
  // Whether the host is preempted, and others are usable: its servers are to end and to be started there.
  bool moves_from(const std::string& host) const;

  // What is to be started now; each once.
  std::vector<StartServer> take_due(TimePoint now);
  // When take_due() returns something next; empty: not before the next event.
  std::optional<Deadline> next_deadline() const;

 private:
  struct Server {
    std::string host{};  // that it runs on, or has run on; empty: none
    int starts = 0;
    int failures = 0;
    bool runs = false, is_given_up = false;
    TimePoint due{};  // unless it runs
    TimePoint since{};
  };

  std::vector<std::string> usable_hosts() const;
  std::string host_for(const Server& server) const;
  bool waits(const Server& server) const;

  const int slots_needed_;
  bool has_enough_slots_ = false;
  std::vector<std::string> hosts_;
  std::set<std::string> preempted_;
  std::vector<Server> servers_;
};

}  // namespace hvd::launcher
