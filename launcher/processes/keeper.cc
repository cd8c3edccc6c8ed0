#include "launcher/processes/keeper.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr Duration kAnswerTime = 30s;  // for a start on a machine that is short of memory
constexpr Duration kResumeTime = 100ms;
constexpr Duration kListTime = 1s;
constexpr Duration kSendTime = 1s;
constexpr Duration kFarewellTime = 1s;

std::vector<pid_t> own_children() {
  std::vector<pid_t> result;
  if (!has_children()) return result;
  for (const ProcessEntry& entry : list_processes()) {
    if (entry.parent == getpid()) result.push_back(entry.pid);
  }
  return result;
}

bool wait_for(int fd, short events, Deadline deadline) {
  pollfd ready{.fd = fd, .events = events, .revents = 0};
  int count = -1;
  do {
    count = poll(&ready, 1, poll_timeout(deadline));
  } while (count <= 0 && Clock::now() < deadline);
  return count > 0;
}

}  // namespace

Keeper::Keeper(const SignalSource& signals) : others_(own_children()) {
  auto [own, other] = make_packet_sockets();
  socket_ = std::move(own);
  const pid_t self = getpid();
  pid_ = fork();
  if (pid_ == 0) run_keeper(std::move(other), signals, self);
  if (pid_ < 0) throw_errno("cannot start the keeper");
  setpgid(pid_, pid_);  // as in the keeper, before a signal for this process's group can reach it
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Keeper::~Keeper() {
  socket_.reset();
  if (pid_ < 0) return;
  resume();
  for (const Deadline deadline = deadline_after(kFarewellTime); Clock::now() < deadline; poll(nullptr, 0, 1)) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
  }
}

pid_t Keeper::pid() const { return pid_; }

pid_t Keeper::start(int rank, const ChildStart& start) {
  std::vector<int> descriptors = {start.standard_input, start.standard_output, start.standard_error};
  for (const InheritedDescriptor& entry : start.inherited) descriptors.push_back(entry.fd);
  const Deadline deadline = deadline_after(kAnswerTime);
  const auto deliver = [&](const KeeperRequest& request, const std::vector<int>& with) {
    if (!send(request, deadline, with)) throw_errno("cannot reach the keeper of the ranks");
  };
  const std::uint32_t number = expect_answer();
  const std::string bytes = encode_start(start);
  for (std::size_t at = 0; at < bytes.size(); at += kMaxStartPart) {
    deliver({.kind = KeeperRequest::Kind::start_part, .part = bytes.substr(at, kMaxStartPart), .number = number}, {});
  }
  deliver({.kind = KeeperRequest::Kind::start, .number = number}, descriptors);
  const KeeperReport answer = await(KeeperReport::Kind::started, deadline);
  ranks_[answer.pid] = rank;
  any_left_ = true;
  return answer.pid;
}

void Keeper::signal_ranks(int signal) { send({.kind = KeeperRequest::Kind::signal_ranks, .value = signal}); }

void Keeper::signal_all(int signal) { send({.kind = KeeperRequest::Kind::signal_all, .value = signal}); }

void Keeper::resume() const {
  if (pid_ > 0) kill(pid_, SIGCONT);
}

void Keeper::end_groups() { send({.kind = KeeperRequest::Kind::end_groups}); }

void Keeper::kill_rank(pid_t pid) { send({.kind = KeeperRequest::Kind::kill_rank, .value = pid}); }

void Keeper::set_lease(Duration length) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(length).count();
  send({.kind = KeeperRequest::Kind::set_lease, .value = static_cast<std::int32_t>(ms)});
}

void Keeper::renew_lease() {
  send_packet(socket_.get(), encode(KeeperRequest{.kind = KeeperRequest::Kind::renew_lease}));
}

int Keeper::fd() const { return socket_.get(); }

bool Keeper::send(const KeeperRequest& request) { return send(request, deadline_after(kSendTime), {}); }

bool Keeper::send(const KeeperRequest& request, Deadline deadline, const std::vector<int>& descriptors) {
  const std::string bytes = encode(request);
  while (!send_packet(socket_.get(), bytes, descriptors)) {
    if (errno != EAGAIN || Clock::now() >= deadline) return false;
    resume();
    wait_for(socket_.get(), POLLOUT, std::min(deadline, deadline_after(kResumeTime)));
  }
  return true;
}

std::uint32_t Keeper::expect_answer() {
  answer_.reset();
  return awaited_ = ++last_request_;
}

bool Keeper::receive() {
  while (!closed_) {
    const std::optional<Packet> packet = receive_packet(socket_.get());
    if (!packet) return true;
    if (packet->bytes.empty()) {
      closed_ = true;
      break;
    }
    KeeperReport report = decode_keeper_report(packet->bytes);
    if (report.kind == KeeperReport::Kind::nothing_left) {
      any_left_ = false;
    } else if (report.kind == KeeperReport::Kind::ended) {
      if (const auto rank = ranks_.extract(report.pid)) {
        ended_.push_back({.rank = rank.mapped(), .status = report.status});
      }
    } else if (report.number != awaited_) {
      discard(report);
    } else {
      answer_ = std::move(report);
      return true;  // start() must record the new pid before later reports about it are read
    }
  }
  return false;
}

std::vector<Keeper::Ended> Keeper::take_ended() { return std::exchange(ended_, {}); }

bool Keeper::any_left() const { return any_left_; }

KeeperReport Keeper::await(KeeperReport::Kind expected, Deadline deadline) {
  while (!answer_) {
    const bool readable = wait_for(socket_.get(), POLLIN, std::min(deadline, deadline_after(kResumeTime)));
    if (readable && !receive()) throw PeerLost("the keeper of the ranks has ended");
    if (!readable && Clock::now() >= deadline) {
      awaited_ = 0;
      throw Timeout("the keeper of the ranks does not answer");
    }
    if (!readable) resume();
  }
  awaited_ = 0;
  KeeperReport answer = std::move(*std::exchange(answer_, std::nullopt));
  if (answer.kind == expected) return answer;
  throw Internal(answer.text);
}

void Keeper::discard(const KeeperReport& late_answer) {
  if (late_answer.kind != KeeperReport::Kind::started) return;
  any_left_ = true;
  kill_rank(late_answer.pid);
}

std::vector<pid_t> Keeper::list_left() {
  if (!any_left_) return {};
  try {
    send({.kind = KeeperRequest::Kind::list_left, .number = expect_answer()});
    return await(KeeperReport::Kind::left, deadline_after(kListTime)).pids;
  } catch (const Error&) {
    return {};
  }
}

void Keeper::leave_alone(pid_t pid) { others_.push_back(pid); }

bool Keeper::kill_orphans() {
  pid_ = -1;
  ranks_.clear();
  any_left_ = !kill_descendants(others_, deadline_after(kKillingTime));
  return !any_left_;
}

}  // namespace hvd::launcher
