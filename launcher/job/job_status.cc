#include "launcher/job/job_status.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxConnections = 8;
constexpr std::size_t kMaxQuery = 64;
constexpr std::size_t kMaxAnswer = std::size_t{64} << 20;
constexpr Duration kConnectionTime = 10s;
constexpr Duration kClosedTime = 1s;  // a pending connection would wake the loop again and again

bool may_ask(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

}  // namespace

StatusQueries::StatusQueries(EventLoop& loop, const std::vector<HostPlan>& plans,
                             const std::vector<std::unique_ptr<Host>>& hosts)
    : plans_(plans), hosts_(hosts), timer_(loop, [this] { on_time(); }) {}

void StatusQueries::set_epoch_ranks(std::function<std::optional<EpochRank>(int process)> rank_of) {
  epoch_rank_of_ = std::move(rank_of);
}

void StatusQueries::ask(bool with_stacks, Done done) {
  const std::uint64_t query_id = ++last_query_id_;
  StatusQuery& query = open_[query_id];
  query.deadline = deadline_after(kStatusQueryTimeout);
  query.done = std::move(done);
  for (std::size_t host = 0; host < plans_.size(); ++host) {
    if (!lost_.contains(static_cast<int>(host))) query.missing.insert(static_cast<int>(host));
    for (const RankPlan& rank : plans_[host].ranks) {
      query.ranks.push_back({.rank = rank.numbers.rank, .host = plans_[host].name, .status = {}});
    }
    for (const RankPlan& process : plans_[host].servers) {
      query.ranks.push_back(
          {.rank = process.numbers.rank, .host = plans_[host].name, .status = {}, .server = process.server});
    }
  }
  std::sort(query.ranks.begin(), query.ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  const std::set<int> asked = query.missing;  // a copy: the last answer erases the query
  if (asked.empty()) return complete(query_id);
  set_timer();
  for (const int host : asked) hosts_[static_cast<std::size_t>(host)]->query_status(query_id, with_stacks);
}

void StatusQueries::answered(int host, std::uint64_t query_id, std::vector<RankStatus> statuses) {
  const auto found = open_.find(query_id);
  if (found == open_.end() || found->second.missing.erase(host) == 0) return;
  std::set<int> ranks_there;
  const HostPlan& there = plans_[static_cast<std::size_t>(host)];
  for (const auto* processes : {&there.ranks, &there.servers}) {
    for (const RankPlan& process : *processes) ranks_there.insert(process.numbers.rank);
  }
  for (RankStatus& status : statuses) {
    if (!ranks_there.contains(status.rank)) continue;
    // In an elastic job numbers are missing, and a process may be newer than the query.
    const auto entry = std::ranges::lower_bound(found->second.ranks, status.rank, {}, &StatusOfRank::rank);
    if (entry != found->second.ranks.end() && entry->rank == status.rank) entry->status = std::move(status);
  }
  if (found->second.missing.empty()) complete(query_id);
}

void StatusQueries::host_lost(int host) {
  lost_.insert(host);
  std::vector<std::uint64_t> done;
  for (auto& [query_id, query] : open_) {
    if (query.missing.erase(host) > 0 && query.missing.empty()) done.push_back(query_id);
  }
  for (const std::uint64_t query_id : done) complete(query_id);
}

bool StatusQueries::empty() const { return open_.empty(); }

void StatusQueries::complete(std::uint64_t query_id) {
  const auto found = open_.extract(query_id);
  set_timer();
  if (found && epoch_rank_of_) {
    for (StatusOfRank& rank : found.mapped().ranks) {
      if (rank.server < 0) rank.epoch_rank = epoch_rank_of_(rank.rank);
    }
  }
  if (found) found.mapped().done(std::move(found.mapped().ranks));
}

void StatusQueries::on_time() {
  const TimePoint now = Clock::now();
  std::vector<std::uint64_t> late;
  for (const auto& [query_id, query] : open_) {
    if (now >= query.deadline) late.push_back(query_id);
  }
  for (const std::uint64_t query_id : late) complete(query_id);
  set_timer();
}

void StatusQueries::set_timer() {
  timer_.set(open_.empty() ? std::nullopt : std::optional(open_.begin()->second.deadline));
}

std::string status_socket_name(unsigned uid, int pid) {
  return "hvd-job-" + std::to_string(uid) + "-" + std::to_string(pid);
}

StatusSocket::StatusSocket(EventLoop& loop, Ask ask)
    : loop_(loop), ask_(std::move(ask)), listener_(Listener::unix_abstract(status_socket_name(geteuid(), getpid()))) {
  start_accepting();
}

StatusSocket::~StatusSocket() {
  loop_.forget(listener_.fd());
  while (!connections_.empty()) end(connections_.begin()->first);
}

void StatusSocket::start_accepting() {
  loop_.watch(listener_.fd(), EPOLLIN, [this] { accept_one(); });
}

// Closes connections of other users, and those beyond the limit.
void StatusSocket::accept_one() {
  std::optional<Socket> socket;
  try {
    socket = listener_.accept_now();
  } catch (const Internal&) {  // out of descriptors or memory
    loop_.forget(listener_.fd());
    closed_.set(deadline_after(kClosedTime));
  }
  if (!socket || !may_ask(socket->fd()) || connections_.size() == kMaxConnections) return;
  const std::uint64_t number = ++last_number_;
  Connection& connection = connections_[number];
  connection.socket = std::move(*socket);
  connection.timer = std::make_unique<Timer>(loop_, [this, number] { end(number); });
  connection.timer->set(deadline_after(kConnectionTime));
  loop_.watch(connection.socket.fd(), EPOLLIN | EPOLLOUT | EPOLLET, [this, number] { on_event(number); });
}

void StatusSocket::on_event(std::uint64_t number) {
  if (!connections_.at(number).has_asked) return read_query(number);
  write_answer(number);
}

void StatusSocket::read_query(std::uint64_t number) {
  Connection& connection = connections_.at(number);
  std::array<char, kMaxQuery> bytes;
  const auto count = connection.socket.receive_some(std::as_writable_bytes(std::span(bytes)));
  if (!count) return end(number);
  connection.query.append(bytes.data(), *count);
  const std::size_t line_end = connection.query.find('\n');
  if (line_end == std::string::npos) {
    if (connection.query.size() > kMaxQuery) end(number);
    return;
  }
  connection.has_asked = true;
  ask_(connection.query.substr(0, line_end), [this, number](std::string text) {
    const auto found = connections_.find(number);
    if (found == connections_.end()) return;  // the peer has left
    text.resize(std::min(text.size(), kMaxAnswer));
    found->second.answer = std::move(text);
    write_answer(number);
  });
}

void StatusSocket::write_answer(std::uint64_t number) {
  Connection& connection = connections_.at(number);
  if (!connection.answer) return;
  while (connection.written < connection.answer->size()) {
    const auto count =
        connection.socket.send_some(std::as_bytes(std::span(*connection.answer)).subspan(connection.written));
    if (!count) break;
    if (*count == 0) return;
    connection.written += *count;
  }
  end(number);
}

void StatusSocket::end(std::uint64_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  loop_.forget(found->second.socket.fd());
  const auto gone = connections_.extract(found);  // its timer, too, which may be the caller: it is unset then
}

JobStatus::JobStatus(EventLoop& loop, const std::vector<HostPlan>& plans,
                     const std::vector<std::unique_ptr<Host>>& hosts, std::function<void(const std::string&)> say,
                     bool verbose)
    : say_(std::move(say)), queries_(loop, plans, hosts) {
  try {
    socket_ = std::make_unique<StatusSocket>(
        loop, [this](const std::string& query, const auto& reply) { answer(query, reply); });
  } catch (const Error& error) {
    if (verbose) say_(std::string("hvd stacks and hvd top cannot reach this job: ") + error.what());
  }
}

StatusQueries& JobStatus::queries() { return queries_; }

void JobStatus::answer(const std::string& query, const StatusSocket::Answer& answer) {
  if (query == "stacks") {
    queries_.ask(true, [answer](const std::vector<StatusOfRank>& ranks) { answer(stacks_text(ranks)); });
  } else if (query == "statuses") {
    queries_.ask(false, [answer](const std::vector<StatusOfRank>& ranks) { answer(status_table(ranks)); });
  } else {
    answer("unknown query\n");
  }
}

// A stall inspector's warning is always a stall; a long operation may not be one, while other ranks make progress.
void JobStatus::stalled(int host, bool on, bool is_ending) {
  if (!on) stalled_hosts_.erase(host);
  if (stalled_hosts_.empty()) told_stall_.clear();
  if (!on) return;
  stalled_hosts_.insert(host);
  if (is_ending) return;
  queries_.ask(true, [this](const std::vector<StatusOfRank>& ranks) {
    const std::string text = find_stragglers(ranks, time_to_count_as_stalled(ranks));
    std::string what = stable_part_of(text);
    if (text.empty() || what == told_stall_) return;
    told_stall_ = std::move(what);
    say_("the job is stalled: " + text);
  });
}

void JobStatus::host_lost(int host) {
  queries_.host_lost(host);
  stalled_hosts_.erase(host);
}

}  // namespace hvd::launcher
