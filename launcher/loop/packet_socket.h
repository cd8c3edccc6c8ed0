// Packets with file descriptors between two processes, over a pair of SOCK_SEQPACKET sockets. Nothing here blocks.
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
  std::string bytes;  // none: the other end is closed
  std::vector<FileDescriptor> descriptors;
  bool truncated = false;  // bytes or descriptors are missing: too many, or this process may open no more files
};

// Both ends close on exec. Throws Internal.
std::pair<FileDescriptor, FileDescriptor> make_packet_sockets();

// Whether the packet is on its way; if not, errno says why (EAGAIN: the other end reads too slowly). `bytes` is not
// empty; the descriptors stay open here.
bool send_packet(int socket, std::string_view bytes, std::span<const int> descriptors = {});

// Empty: there is none now. The descriptors close on exec.
std::optional<Packet> receive_packet(int socket);

}  // namespace hvd::launcher
