#include "core/net/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "core/net/endpoint.h"

namespace hvd {

namespace {

constexpr std::size_t kMaxBuffers = 64;

timespec until(Deadline deadline) {
  const auto remaining = std::max(Duration::zero(), deadline - Clock::now());
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(remaining).count();
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

// The result of a system call that transfers bytes: a count, "would block", or a lost connection and why.
struct Moved {
  std::size_t count = 0;
  bool would_block = false;
  int lost = 0;  // errno value; 0: connected
};

Moved outcome(ssize_t result, const char* operation) {
  if (result >= 0) return {.count = static_cast<std::size_t>(result)};
  switch (errno) {
    case EAGAIN: return {.would_block = true};
    case EBADF:
    case EFAULT:
    case EINVAL:
    case ENOBUFS:
    case ENOMEM:
    case ENOTSOCK: throw Internal(std::string(operation) + ": " + error_text(errno));
    default: return {.lost = errno};  // everything else is caused by the network or the peer
  }
}

template <typename SystemCall>
ssize_t uninterrupted(const SystemCall& call) {
  ssize_t result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

Moved send_once(int fd, std::span<const std::byte> bytes) {
  return outcome(uninterrupted([&] { return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); }), "send");
}

Moved receive_once(int fd, std::span<std::byte> bytes) {
  const ssize_t result = uninterrupted([&] { return recv(fd, bytes.data(), bytes.size(), 0); });
  if (result == 0 && !bytes.empty()) return {.lost = EPIPE};
  return outcome(result, "recv");
}

std::optional<std::size_t> as_optional(const Moved& moved) {
  if (moved.lost != 0) return std::nullopt;
  return moved.count;
}

PeerLost lost(std::string_view peer, int error_number) {
  const std::string who(peer);
  if (error_number == EPIPE) return PeerLost(who + " closed the connection");
  return PeerLost("the connection to " + who + " broke: " + error_text(error_number));
}

// A descriptor is sent as a control message with one byte of ordinary data.
struct DescriptorMessage {
  DescriptorMessage() {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  std::byte payload{};
  iovec piece{.iov_base = &payload, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

// The first descriptor of the message; any others are closed.
FileDescriptor take_descriptor(msghdr& header) {
  FileDescriptor first;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
      int raw = -1;
      std::memcpy(&raw, reinterpret_cast<const char*>(part) + at, sizeof raw);
      FileDescriptor descriptor(raw);
      if (!first) first = std::move(descriptor);
    }
  }
  return first;
}

}  // namespace

int FileDescriptor::get() const { return fd_; }

void FileDescriptor::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

bool wait_ready(int fd, bool for_writing, Deadline deadline) {
  pollfd entry{.fd = fd, .events = static_cast<short>(for_writing ? POLLOUT : POLLIN), .revents = 0};
  for (;;) {
    const timespec remaining = until(deadline);
    const int count = ppoll(&entry, 1, deadline == Deadline::max() ? nullptr : &remaining, nullptr);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) throw Internal("poll: " + error_text(errno));
    if (Clock::now() >= deadline) return false;
  }
}

int Socket::fd() const { return fd_.get(); }

void Socket::send_all(std::span<const std::byte> bytes, Deadline deadline, std::string_view peer) {
  while (!bytes.empty()) {
    const Moved moved = send_once(fd(), bytes);
    if (moved.lost != 0) throw lost(peer, moved.lost);
    bytes = bytes.subspan(moved.count);
    if (moved.would_block && !wait_ready(fd(), true, deadline)) {
      throw Timeout("waiting for " + std::string(peer) + " to take " + std::to_string(bytes.size()) + " bytes");
    }
  }
}

void Socket::receive_all(std::span<std::byte> bytes, Deadline deadline, std::string_view peer) {
  while (!bytes.empty()) {
    const Moved moved = receive_once(fd(), bytes);
    if (moved.lost != 0) throw lost(peer, moved.lost);
    bytes = bytes.subspan(moved.count);
    if (moved.would_block && !wait_ready(fd(), false, deadline)) {
      throw Timeout("waiting for " + std::to_string(bytes.size()) + " bytes from " + std::string(peer));
    }
  }
}

std::optional<std::size_t> Socket::send_some(std::span<const std::byte> bytes) {
  return as_optional(send_once(fd(), bytes));
}

std::optional<std::size_t> Socket::receive_some(std::span<std::byte> bytes) {
  return as_optional(receive_once(fd(), bytes));
}

std::optional<std::size_t> Socket::send_some(std::span<const std::span<const std::byte>> buffers) {
  std::array<iovec, kMaxBuffers> pieces;
  const std::size_t count = std::min(buffers.size(), pieces.size());
  for (std::size_t i = 0; i < count; ++i) {
    pieces[i] = {.iov_base = const_cast<std::byte*>(buffers[i].data()), .iov_len = buffers[i].size()};
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  return as_optional(outcome(uninterrupted([&] { return sendmsg(fd(), &message, MSG_NOSIGNAL); }), "sendmsg"));
}

std::string Socket::local_host() const { return local_endpoint(fd()).host(); }

std::string Socket::peer_host() const { return peer_endpoint(fd()).host(); }

void Socket::send_descriptor(int passed, Deadline deadline, std::string_view peer) {
  DescriptorMessage message;
  cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &passed, sizeof passed);

  while (sendmsg(fd(), &message.header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) throw PeerLost(std::string(peer) + " closed the connection");
    if (errno != EAGAIN) throw Internal("passing a descriptor to " + std::string(peer) + ": " + error_text(errno));
    if (!wait_ready(fd(), true, deadline)) throw Timeout("waiting for " + std::string(peer) + " to take a descriptor");
  }
}

FileDescriptor Socket::receive_descriptor(Deadline deadline, std::string_view peer) {
  DescriptorMessage message;
  ssize_t count;
  while ((count = recvmsg(fd(), &message.header, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNRESET) throw PeerLost(std::string(peer) + " closed the connection");
    if (errno != EAGAIN) throw Internal("a descriptor from " + std::string(peer) + ": " + error_text(errno));
    if (!wait_ready(fd(), false, deadline)) throw Timeout("waiting for a descriptor from " + std::string(peer));
  }
  if (count == 0) throw PeerLost(std::string(peer) + " closed the connection");
  FileDescriptor descriptor = take_descriptor(message.header);
  if (!descriptor && (message.header.msg_flags & MSG_CTRUNC) != 0) {  // this process has no descriptor left for it
    throw Internal("cannot take the descriptor that " + std::string(peer) + " has sent: " + error_text(EMFILE));
  }
  if (!descriptor) throw Internal(std::string(peer) + " sent no descriptor where one was expected");
  return descriptor;
}

}  // namespace hvd
