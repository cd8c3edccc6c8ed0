#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "core/base/error_text.h"
#include "core/net/socket.h"

namespace hvd {

namespace {

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
  if (!descriptor) throw Internal(std::string(peer) + " sent no descriptor where one was expected");
  return descriptor;
}

}  // namespace hvd
