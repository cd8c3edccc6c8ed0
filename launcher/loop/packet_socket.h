// Sends packets with file descriptors between two processes, over a pair of SOCK_SEQPACKET sockets. Never blocks.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/net/socket.h"

namespace hvd::launcher {

inline constexpr std::size_t kMaxPacketBytes = 8192;
inline constexpr std::size_t kMaxPacketDescriptors = 253;  // the kernel's limit

struct Packet {
  std::string bytes;  // empty: the other end is closed
  std::vector<FileDescriptor> descriptors;
  bool truncated = false;  // bytes or descriptors are missing: too many, or this process is at its open-file limit
};

// Both descriptors are close-on-exec. Throws Internal.
std::pair<FileDescriptor, FileDescriptor> make_packet_sockets();

// Returns whether the packet was sent; if not, errno is set (EAGAIN: the other end reads too slowly). `bytes` must not
// be empty; the descriptors stay open in this process.
bool send_packet(int socket, std::string_view bytes, std::span<const int> descriptors = {});

// Returns nothing if no packet is available. The received descriptors are close-on-exec.
std::optional<Packet> receive_packet(int socket);

}  // namespace hvd::launcher
