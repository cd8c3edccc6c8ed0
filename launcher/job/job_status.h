// What the ranks of a job are doing, for its own reports, `hvd stacks` and `hvd top`. Main thread only; never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/net/socket.h"
#include "launcher/job/host.h"
#include "launcher/processes/event_loop.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

inline constexpr Duration kStatusQueryTimeout = 1s;  // ranks of hosts that have not answered by then have no status

// Queries the status of all ranks: asks every host, and collects the answers until a deadline.
class StatusQueries {
 public:
  // Called with all ranks, ascending, and servers behind them; those that have not answered have no status.
  using Done = std::function<void(std::vector<StatusOfRank>)>;

  StatusQueries(EventLoop& loop, const std::vector<HostPlan>& plans, const std::vector<std::unique_ptr<Host>>& hosts);

  // Of an elastic job: the rank of a process in its epoch.
  void set_epoch_ranks(std::function<std::optional<EpochRank>(int process)> rank_of);

  // Calls `done` once, possibly before ask() returns.
  void ask(bool with_stacks, Done done);
  // The answer of a host. Answers to unknown queries, and statuses of other hosts' ranks, are ignored.
  void answered(int host, std::uint64_t query_id, std::vector<RankStatus> statuses);
  void host_lost(int host);
  bool empty() const;

 private:
  struct StatusQuery {
    std::set<int> missing;  // hosts
    std::vector<StatusOfRank> ranks;
    Deadline deadline;
    Done done;
  };

  void complete(std::uint64_t query_id);
  void on_time();
  void set_timer();

  const std::vector<HostPlan>& plans_;
  const std::vector<std::unique_ptr<Host>>& hosts_;
  std::function<std::optional<EpochRank>(int process)> epoch_rank_of_;
  std::set<int> lost_;
  std::map<std::uint64_t, StatusQuery> open_;
  std::uint64_t last_query_id_ = 0;
  Timer timer_;
};

// The socket at which a running job answers queries of other processes: a Unix socket in the abstract namespace,
// "@hvd-job-UID-PID" of hvdrun, so that no file is left behind. Accepts connections of the same user and of root. Each
// connection carries one query, a line; the answer is text up to the end of the connection. There are at most eight
// connections, of at most ten seconds each.
class StatusSocket {
 public:
  using Answer = std::function<void(std::string text)>;
  // Must call `answer` once, during the call or later, as long as the StatusSocket exists.
  using Ask = std::function<void(const std::string& query, Answer answer)>;

  // Throws InvalidArgument if it cannot listen there.
  StatusSocket(EventLoop& loop, Ask ask);
  ~StatusSocket();

 private:
  struct Connection {
    Socket socket;
    std::string query;
    std::optional<std::string> answer;  // empty: there is none yet
    std::size_t written = 0;
    bool has_asked = false;
    std::unique_ptr<Timer> timer;
  };

  void start_accepting();
  void accept_one();
  void on_event(std::uint64_t number);
  void read_query(std::uint64_t number);
  void write_answer(std::uint64_t number);
  void end(std::uint64_t number);

  EventLoop& loop_;
  const Ask ask_;
  Listener listener_;
  Timer closed_{loop_, [this] { start_accepting(); }};  // set while no descriptor is free for a new connection
  std::map<std::uint64_t, Connection> connections_;
  std::uint64_t last_number_ = 0;
};

// What the ranks of a running job are doing: tells the user when they are stalled, and other processes when they ask.
class JobStatus {
 public:
  // The hosts must outlive it. `say` writes a line for the user; with `verbose` also if there is no socket.
  JobStatus(EventLoop& loop, const std::vector<HostPlan>& plans, const std::vector<std::unique_ptr<Host>>& hosts,
            std::function<void(const std::string&)> say, bool verbose);

  StatusQueries& queries();
  // Ranks of the host are stalled, or no longer. As long as any host is stalled it is the same stall: told once, and
  // again if its stable part changes; never of a job that is ending.
  void stalled(int host, bool on, bool is_ending);
  void host_lost(int host);

 private:
  void answer(const std::string& query, const StatusSocket::Answer& answer);

  const std::function<void(const std::string&)> say_;
  StatusQueries queries_;
  std::unique_ptr<StatusSocket> socket_;  // null: it could not be created
  std::set<int> stalled_hosts_;
  std::string told_stall_;  // the stable part of the reported stall; empty: none, or it is over
};

// "hvd-job-0-4711", in the abstract namespace.
std::string status_socket_name(unsigned uid, int pid);

}  // namespace hvd::launcher
