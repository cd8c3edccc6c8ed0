#include "launcher/processes/supervisor.h"

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
#include "core/net/byte_codec.h"

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

Supervisor::Supervisor(const SignalSource& signals) : others_(own_children()) {
  auto [own, other] = make_packet_sockets();
  socket_ = std::move(own);
  const pid_t self = getpid();
  pid_ = fork();
  if (pid_ == 0) run_supervisor(std::move(other), signals, self);
  if (pid_ < 0) throw_errno("cannot start the supervisor");
  setpgid(pid_, pid_);  // as in the supervisor, before a signal for this process's group can reach it
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Supervisor::~Supervisor() {
  socket_.reset();
  if (pid_ < 0) return;
  resume();
  for (const Deadline deadline = deadline_after(kFarewellTime); Clock::now() < deadline; poll(nullptr, 0, 1)) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
  }
}

pid_t Supervisor::pid() const { return pid_; }

pid_t Supervisor::start(int rank, const ChildStart& start) {
  std::vector<int> descriptors = {start.standard_input, start.standard_output, start.standard_error};
  for (const InheritedDescriptor& entry : start.inherited) descriptors.push_back(entry.fd);
  const Deadline deadline = deadline_after(kAnswerTime);
  const auto deliver = [&](const SupervisorRequest& request, const std::vector<int>& with) {
    if (!send(request, deadline, with)) throw_errno("cannot reach the supervisor of the ranks");
  };
  const std::uint32_t number = expect_answer();
  const std::string bytes = encode_value(start);
  for (std::size_t at = 0; at < bytes.size(); at += kMaxStartPart) {
    deliver({.kind = SupervisorRequest::Kind::start_part, .part = bytes.substr(at, kMaxStartPart), .number = number},
            {});
  }
  deliver({.kind = SupervisorRequest::Kind::start, .number = number}, descriptors);
  const SupervisorReport answer = await(SupervisorReport::Kind::started, deadline);
  ranks_[answer.pid] = rank;
  any_left_ = true;
  return answer.pid;
}

void Supervisor::signal_ranks(int signal) { send({.kind = SupervisorRequest::Kind::signal_ranks, .value = signal}); }

void Supervisor::signal_all(int signal) { send({.kind = SupervisorRequest::Kind::signal_all, .value = signal}); }

void Supervisor::resume() const {
  if (pid_ > 0) kill(pid_, SIGCONT);
}

void Supervisor::end_groups() { send({.kind = SupervisorRequest::Kind::end_groups}); }

void Supervisor::kill_rank(pid_t pid) { send({.kind = SupervisorRequest::Kind::kill_rank, .value = pid}); }

void Supervisor::set_lease(Duration length) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(length).count();
  send({.kind = SupervisorRequest::Kind::set_lease, .value = static_cast<std::int32_t>(ms)});
}

void Supervisor::renew_lease() {
  send_packet(socket_.get(), encode(SupervisorRequest{.kind = SupervisorRequest::Kind::renew_lease}));
}

int Supervisor::fd() const { return socket_.get(); }

bool Supervisor::send(const SupervisorRequest& request) { return send(request, deadline_after(kSendTime), {}); }

bool Supervisor::send(const SupervisorRequest& request, Deadline deadline, const std::vector<int>& descriptors) {
  const std::string bytes = encode(request);
  while (!send_packet(socket_.get(), bytes, descriptors)) {
    if (errno != EAGAIN || Clock::now() >= deadline) return false;
    resume();
    wait_for(socket_.get(), POLLOUT, std::min(deadline, deadline_after(kResumeTime)));
  }
  return true;
}

std::uint32_t Supervisor::expect_answer() {
  answer_.reset();
  return awaited_ = ++last_request_;
}

bool Supervisor::receive() {
  while (!closed_) {
    const std::optional<Packet> packet = receive_packet(socket_.get());
    if (!packet) return true;
    if (packet->bytes.empty()) {
      closed_ = true;
      break;
    }
    SupervisorReport report = decode_supervisor_report(packet->bytes);
    if (report.kind == SupervisorReport::Kind::nothing_left) {
      any_left_ = false;
    } else if (report.kind == SupervisorReport::Kind::ended) {
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

std::vector<Supervisor::Ended> Supervisor::take_ended() { return std::exchange(ended_, {}); }

bool Supervisor::any_left() const { return any_left_; }

SupervisorReport Supervisor::await(SupervisorReport::Kind expected, Deadline deadline) {
  while (!answer_) {
    const bool readable = wait_for(socket_.get(), POLLIN, std::min(deadline, deadline_after(kResumeTime)));
    if (readable && !receive()) throw PeerLost("the supervisor of the ranks has ended");
    if (!readable && Clock::now() >= deadline) {
      awaited_ = 0;
      throw Timeout("the supervisor of the ranks does not answer");
    }
    if (!readable) resume();
  }
  awaited_ = 0;
  SupervisorReport answer = std::move(*std::exchange(answer_, std::nullopt));
  if (answer.kind == expected) return answer;
  throw Internal(answer.text);
}

void Supervisor::discard(const SupervisorReport& late_answer) {
  if (late_answer.kind != SupervisorReport::Kind::started) return;
  any_left_ = true;
  kill_rank(late_answer.pid);
}

std::vector<pid_t> Supervisor::list_left() {
  if (!any_left_) return {};
  try {
    send({.kind = SupervisorRequest::Kind::list_left, .number = expect_answer()});
    return await(SupervisorReport::Kind::left, deadline_after(kListTime)).pids;
  } catch (const Error&) {
    return {};
  }
}

void Supervisor::leave_alone(pid_t pid) { others_.push_back(pid); }

bool Supervisor::kill_orphans() {
  pid_ = -1;
  ranks_.clear();
  any_left_ = !kill_descendants(others_, deadline_after(kKillingTime));
  return !any_left_;
}

}  // namespace hvd::launcher
