#include "launcher/loop/packet_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/loop/throw_errno.h"

namespace hvd::launcher {
namespace {

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

std::pair<FileDescriptor, FileDescriptor> make_packet_sockets() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw_errno("cannot make a pair of sockets");
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
  ssize_t count = -1;
  do {
    count = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  return count >= 0;
}

std::optional<Packet> receive_packet(int socket) {
  ControlBuffer control;
  std::array<char, kMaxPacketBytes> bytes;
  iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t count = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0 && errno != ECONNRESET) return std::nullopt;  // also if out of memory: the packet stays queued
  if (count <= 0) return Packet{};
  return Packet{.bytes = {bytes.data(), static_cast<std::size_t>(count)},
                .descriptors = take_descriptors(header),
                .truncated = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0};
}

}  // namespace hvd::launcher
