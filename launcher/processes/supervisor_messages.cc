#include "launcher/processes/supervisor_messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "launcher/processes/event_loop.h"

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

ByteReader reader_of(std::string_view bytes) { return ByteReader(std::as_bytes(std::span(bytes))); }

std::string text_of(ByteWriter& writer) {
  const Bytes bytes = writer.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename Kind>
Kind get_kind(ByteReader& reader, Kind last) {
  const auto kind = reader.get<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(last)) throw Internal("malformed message: of no known kind");
  return static_cast<Kind>(kind);
}

void put(ByteWriter& writer, const std::vector<std::string>& strings) {
  writer.put(static_cast<std::uint32_t>(strings.size()));
  for (const std::string& entry : strings) writer.put_string(entry);
}

std::vector<std::string> get_strings(ByteReader& reader) {
  std::vector<std::string> result;
  for (std::uint32_t left = reader.get_count(4); left > 0; --left) result.push_back(reader.get_string());
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

std::string encode(const SupervisorRequest& request) {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(request.kind));
  writer.put(request.value);
  writer.put_string(request.part);
  writer.put(request.number);
  return text_of(writer);
}

SupervisorRequest decode_supervisor_request(std::string_view bytes) {
  ByteReader reader = reader_of(bytes);
  SupervisorRequest request{.kind = get_kind(reader, SupervisorRequest::Kind::renew_lease)};
  request.value = reader.get<std::int32_t>();
  request.part = reader.get_string();
  request.number = reader.get<std::uint32_t>();
  reader.expect_end();
  return request;
}

std::string encode(const SupervisorReport& report) {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(report.kind));
  writer.put(static_cast<std::int32_t>(report.pid));
  writer.put(static_cast<std::uint8_t>(report.status.by_signal));
  writer.put(static_cast<std::int32_t>(report.status.value));
  writer.put(static_cast<std::uint8_t>(report.status.core_dumped));
  writer.put_string(std::string_view(report.text).substr(0, kMaxReportedText));
  const std::size_t pids = std::min(report.pids.size(), kMaxReportedPids);
  writer.put(static_cast<std::uint32_t>(pids));
  for (std::size_t i = 0; i < pids; ++i) writer.put(static_cast<std::int32_t>(report.pids[i]));
  writer.put(report.number);
  return text_of(writer);
}

SupervisorReport decode_supervisor_report(std::string_view bytes) {
  ByteReader reader = reader_of(bytes);
  SupervisorReport report{.kind = get_kind(reader, SupervisorReport::Kind::nothing_left)};
  report.pid = reader.get<std::int32_t>();
  report.status.by_signal = reader.get<std::uint8_t>() != 0;
  report.status.value = reader.get<std::int32_t>();
  report.status.core_dumped = reader.get<std::uint8_t>() != 0;
  report.text = reader.get_string();
  for (std::uint32_t left = reader.get_count(4); left > 0; --left) report.pids.push_back(reader.get<std::int32_t>());
  report.number = reader.get<std::uint32_t>();
  reader.expect_end();
  return report;
}

std::string encode_start(const ChildStart& start) {
  ByteWriter writer;
  writer.put_string(start.program);
  put(writer, start.arguments);
  put(writer, start.environment);
  writer.put_string(start.working_directory);
  writer.put(static_cast<std::uint32_t>(start.cpus.size()));
  for (const int cpu : start.cpus) writer.put(static_cast<std::int32_t>(cpu));
  writer.put(static_cast<std::uint32_t>(start.inherited.size()));
  for (const InheritedDescriptor& entry : start.inherited) writer.put(static_cast<std::int32_t>(entry.number));
  return text_of(writer);
}

ChildStart decode_start(std::string_view bytes) {
  ByteReader reader = reader_of(bytes);
  ChildStart start;
  start.program = reader.get_string();
  start.arguments = get_strings(reader);
  start.environment = get_strings(reader);
  start.working_directory = reader.get_string();
  for (std::uint32_t left = reader.get_count(4); left > 0; --left) start.cpus.push_back(reader.get<std::int32_t>());
  for (std::uint32_t left = reader.get_count(4); left > 0; --left) {
    start.inherited.push_back({.fd = -1, .number = reader.get<std::int32_t>()});
  }
  reader.expect_end();
  return start;
}

}  // namespace hvd::launcher
