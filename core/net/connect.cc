#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/error_text.h"
#include "core/net/endpoint.h"

namespace hvd {

namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(2);
constexpr Duration kLongestPause = std::chrono::milliseconds(200);

// While there is no listener there is no event to wait for; only another attempt can tell.
void pause_until(TimePoint when) { poll(nullptr, 0, poll_timeout(when)); }

// A TCP connection to a free port of this host can connect to itself (simultaneous open): then there is no listener.
bool connected_to_itself(int fd) {
  Endpoint own, other;
  own.length = other.length = sizeof(sockaddr_storage);
  if (getsockname(fd, own.address(), &own.length) != 0 || getpeername(fd, other.address(), &other.length) != 0) {
    return false;
  }
  return own.port() != 0 && own.port() == other.port() && own.host() == other.host();
}

// This host's address is unreachable only while its loopback interface is down: waiting does not help.
void refuse_without_loopback(const Address& address, const Endpoint& endpoint, int failure) {
  const std::string host = endpoint.host();
  if (failure != ENETUNREACH || (!host.starts_with("127.") && host != "::1")) return;
  throw Internal("cannot connect to " + address.to_string() + ": " + error_text(failure) +
                 ": the loopback interface of this host is down, or of this container; ip link set lo up, as root, " +
                 "brings it up");
}

bool wait_connected(int fd, Deadline deadline, AlarmClock& alarm) {
  while (!wait_ready(fd, true, std::min(deadline, alarm.next()))) {
    if (Clock::now() >= deadline) return false;
    alarm.look();
  }
  return true;
}

// One attempt; 0 or the errno value of its failure.
int try_connect(const Endpoint& endpoint, Deadline deadline, AlarmClock& alarm, FileDescriptor& result) {
  FileDescriptor fd;
  int failure = begin_connect(endpoint, fd);
  if (failure == EINPROGRESS) {
    if (!wait_connected(fd.get(), deadline, alarm)) return ETIMEDOUT;
    failure = end_connect(fd.get());
  }
  if (failure != 0) return failure;
  if (connected_to_itself(fd.get())) return ECONNREFUSED;
  result = std::move(fd);
  return 0;
}

}  // namespace

int begin_connect(const Endpoint& endpoint, FileDescriptor& result) {
  const int family = endpoint.storage.ss_family;
  result = open_stream_socket(family);
  if (!result) return EAFNOSUPPORT;
  tune_stream_socket(result.get(), family);
  return ::connect(result.get(), endpoint.address(), endpoint.length) == 0 ? 0 : errno;
}

int end_connect(int fd) {
  int failure = 0;
  socklen_t length = sizeof failure;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &length) == 0 ? failure : errno;
}

Socket Socket::connect(const Address& address, Deadline deadline, const Alarm& alarm) {
  const TimePoint start = Clock::now();
  AlarmClock alarm_clock(alarm);
  std::string cause;
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    for (const Endpoint& endpoint : resolve(address, false, cause)) {
      FileDescriptor fd;
      const int failure = try_connect(endpoint, deadline, alarm_clock, fd);
      if (failure == 0) return Socket(std::move(fd));
      refuse_without_loopback(address, endpoint, failure);
      cause = error_text(failure);
    }
    const TimePoint now = Clock::now();
    if (now >= deadline) {
      const auto waited = std::chrono::round<std::chrono::milliseconds>(now - start).count();
      throw Timeout("could not connect to " + address.to_string() + " for " + std::to_string(waited) + " ms: " + cause);
    }
    alarm_clock.look();
    pause_until(std::min(deadline, now + pause));
  }
}

}  // namespace hvd
