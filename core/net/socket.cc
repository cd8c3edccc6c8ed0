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

struct ControlBuffer {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPacketDescriptors * sizeof(int))> bytes{};
};

std::vector<FileDescriptor> take_descriptors(msghdr& header) {
  std::vector<FileDescriptor> result;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> numbers((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(numbers.data(), CMSG_DATA(part), numbers.size() * sizeof(int));
    for (const int number : numbers) result.emplace_back(number);
  }
  return result;
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

// With one byte of ordinary data, which a stream needs.
void Socket::send_descriptor(int passed, Deadline deadline, std::string_view peer) {
  while (!send_packet(fd(), std::string_view("\0", 1), std::span(&passed, 1))) {
    if (errno == EPIPE || errno == ECONNRESET) throw PeerLost(std::string(peer) + " closed the connection");
    if (errno != EAGAIN) throw Internal("passing a descriptor to " + std::string(peer) + ": " + error_text(errno));
    if (!wait_ready(fd(), true, deadline)) throw Timeout("waiting for " + std::string(peer) + " to take a descriptor");
  }
}

FileDescriptor Socket::receive_descriptor(Deadline deadline, std::string_view peer) {
  std::optional<Packet> packet;
  while (!(packet = receive_packet(fd(), 1))) {
    if (errno != EAGAIN) throw Internal("a descriptor from " + std::string(peer) + ": " + error_text(errno));
    if (!wait_ready(fd(), false, deadline)) throw Timeout("waiting for a descriptor from " + std::string(peer));
  }
  if (packet->bytes.empty()) throw PeerLost(std::string(peer) + " closed the connection");
  if (!packet->descriptors.empty()) return std::move(packet->descriptors.front());
  if (packet->truncated) {  // this process has no descriptor left for it
    throw Internal("cannot take the descriptor that " + std::string(peer) + " has sent: " + error_text(EMFILE));
  }
  throw Internal(std::string(peer) + " sent no descriptor where one was expected");
}

std::pair<FileDescriptor, FileDescriptor> make_packet_sockets() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Internal("cannot make a pair of sockets: " + error_text(errno));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

bool send_packet(int socket, std::string_view bytes, std::span<const int> descriptors) {
  ControlBuffer control;
  iovec piece{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    if (descriptors.size() > kMaxPacketDescriptors) {
      errno = EINVAL;
      return false;
    }
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  return uninterrupted([&] { return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT); }) >= 0;
}

std::optional<Packet> receive_packet(int socket, std::size_t max_bytes) {
  ControlBuffer control;
  std::string bytes(max_bytes, '\0');
  iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t count = uninterrupted([&] { return recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (count < 0 && errno != ECONNRESET) return std::nullopt;  // also if out of memory: the packet stays queued
  if (count <= 0) return Packet{};
  bytes.resize(static_cast<std::size_t>(count));
  return Packet{.bytes = std::move(bytes),
                .descriptors = take_descriptors(header),
                .truncated = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0};
}

}  // namespace hvd
