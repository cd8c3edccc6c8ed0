#include "parameters/server_connection.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "core/base/futex.h"
#include "core/base/process.h"

namespace hvd {

namespace {

constexpr Duration kShareTime = std::chrono::seconds(2);  // for passing memory to a worker
constexpr Duration kAcceptRetryInterval = std::chrono::milliseconds(1);

int count_cpus() {
  int count = 0;
  for (const std::uint64_t word : allowed_cpus()) count += __builtin_popcountll(word);
  return std::max(count, 1);
}

}  // namespace

bool ServerConnection::answer_text(const PsRequest& request, StatusCode code, std::string_view text) {
  text = text.substr(0, kMaxPsPayload);
  std::byte* const to = room_for(text.size());
  if (to == nullptr) return false;
  const PsAnswer result{.status = static_cast<std::uint32_t>(code),
                        .sequence = request.sequence,
                        .bytes = static_cast<std::uint32_t>(text.size())};
  std::memcpy(to, &result, sizeof result);
  std::memcpy(to + kPsHeaderBytes, text.data(), text.size());
  pipe->commit(ps_frame_bytes(text.size()));
  return true;
}

std::byte* ServerConnection::room_for(std::size_t payload) {
  const std::size_t bytes = ps_frame_bytes(payload);
  std::byte* const to = pipe->room(bytes);
  lacks_room_ = to == nullptr ? bytes : 0;
  return to;
}

bool ServerConnection::has_room_for(std::size_t payload) {
  std::byte* const to = room_for(payload);
  if (to != nullptr) pipe->commit(0);
  return to != nullptr;
}

bool ServerConnection::has_got_room() {
  if (lacks_room_ == 0 || pipe->room(lacks_room_) == nullptr) return false;
  pipe->commit(0);
  return true;
}

bool ServerConnection::wait_for(const char* what) {
  waits_for = what;
  if (!waits_since) {
    waits_since = Clock::now();
    stall_told = false;
  }
  return false;
}

void ServerConnection::hold_until_replicated(const ReplicatedShard& replicated, std::uint64_t begin) {
  if (!replicated.is_replicating()) return;
  if (held_.empty()) pipe->hold_behind(begin);
  held_.push_back({.until = replicated.position(), .position = begin});
}

void ServerConnection::release(const ReplicatedShard& replicated) {
  if (held_.empty() || !replicated.is_replicated(held_.front().until)) return;
  while (!held_.empty() && replicated.is_replicated(held_.front().until)) held_.pop_front();
  pipe->hold_behind(held_.empty() ? kHoldNothing : held_.front().position);
  flush();
}

void ServerConnection::flush() {
  try {
    pipe->flush();
  } catch (const PeerLost&) {  // input() finds out
  }
}

ServerConnections::ServerConnections(Duration lease, const Log& log)
    : lease_(lease),
      log_(log),
      cpus_(count_cpus()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!epoll_ || !wake_fd_) throw Internal("epoll: " + error_text(errno));
  watch(wake_fd_.get(), EPOLLIN);
}

ServerAddresses ServerConnections::listen(const ServerOptions& options, const JobKey& key) {
  ServerAddresses addresses{.local = {}, .remote = {}, .host_key = options.host_key};
  std::vector<Listener> listeners;
  listeners.push_back(Listener::tcp(options.local_host));
  addresses.remote = listeners.back().address().to_string();
  if (options.shares_memory) {
    listeners.push_back(Listener::unix_abstract());
    addresses.local = listeners.back().address().to_string();
  }
  acceptor_.emplace(std::move(listeners), key, Purpose::parameters, log_);
  watch(acceptor_->fd(), EPOLLIN);
  return addresses;
}

void ServerConnections::accept() {
  while (auto peer = accept_now()) {
    const bool shares = acceptor_->address(peer->listener).kind == Address::Kind::unix_abstract;
    try {
      ServerConnection client(make_server_pipe(std::move(peer->socket), shares, lease_, deadline_after(kShareTime)),
                              shares);
      watch(client.pipe->fd());
      all_.push_back(std::move(client));
      if (shares) ++sharing_;
    } catch (const std::exception& error) {
      log_.warning(std::string("cannot serve a worker: ") + error.what());
    }
  }
}

// Without descriptors for another connection, those that there are live on.
std::optional<Peer> ServerConnections::accept_now() {
  try {
    return acceptor_->accept_now();
  } catch (const Internal& error) {
    if (!std::exchange(is_accept_told_, true)) {
      log_.error(std::string("accepts no more connections for now: ") + error.what());
    }
    std::this_thread::sleep_for(kAcceptRetryInterval);  // its descriptor stays readable
    return std::nullopt;
  }
}

ServerConnection ServerConnections::erase(std::size_t i) {
  ServerConnection client = std::move(all_[i]);
  all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
  if (client.shares_memory) --sharing_;
  return client;
}

void ServerConnections::watch(int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw Internal("epoll_ctl: " + error_text(errno));
}

std::span<const epoll_event> ServerConnections::wait(Duration timeout) {
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(std::min<Duration>(timeout, 60s)).count();
  const int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), static_cast<int>(limit));
  if (count < 0 && errno != EINTR) throw Internal("epoll_wait: " + error_text(errno));
  const auto events = std::span<const epoll_event>(events_).first(static_cast<std::size_t>(std::max(count, 0)));
  for (const epoll_event& event : events) {
    if (event.data.fd == wake_fd_.get()) {
      std::uint64_t rings = 0;
      (void)!read(wake_fd_.get(), &rings, sizeof rings);
    }
    for (ServerConnection& client : all_) {
      if (client.pipe->fd() == event.data.fd) client.pipe->notice_event();
    }
  }
  return events;
}

void ServerConnections::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!write(wake_fd_.get(), &one, sizeof one);
}

void ServerConnections::rest() const { is_oversubscribed() ? static_cast<void>(sched_yield()) : cpu_relax(); }

bool ServerConnections::begin_sleep() {
  for (ServerConnection& client : all_) client.pipe->is_to_sleep(true);
  return std::ranges::none_of(all_, [](ServerConnection& client) {
    try {
      return client.pipe->input().size() != client.unread || client.has_got_room();
    } catch (const Error&) {
      return true;
    }
  });
}

Deadline ServerConnections::next_deadline() const {
  Deadline next = acceptor_->next_deadline();
  for (const ServerConnection& client : all_) next = std::min(next, client.pipe->next_lease_check());
  return next;
}

}  // namespace hvd
