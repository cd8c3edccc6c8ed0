// Stream sockets, TCP and Unix, as owned file descriptors. Non-blocking internally; calls that wait take a deadline.
//
// A Socket is used by one thread at a time. Every failure is an Error that names the operation and the peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"

namespace hvd {

// Where a listener can be reached, as text in the store: "tcp:10.0.0.7:4711" or "unix:<abstract name>". Parsing throws
// InvalidArgument.
struct Address {
  enum class Kind { tcp, unix_abstract };
  Kind kind = Kind::tcp;
  std::string host;  // tcp: numeric address or name; unix_abstract: the name
  std::uint16_t port = 0;

  std::string to_string() const;
  static Address parse(std::string_view text);
  bool operator==(const Address&) const = default;
};

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  int get() const;
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// How long a host may be silent before it counts as dead.
//
// A host that loses power or its network sends neither a close nor a reset. On an idle connection the kernel detects
// that by keep-alive probes, without waking a thread. It sends no probes while bytes are in flight, and its limit for
// these (TCP_USER_TIMEOUT) includes the time in which a live peer, stopped for instance, accepts nothing. So a sender
// monitors what it has sent with a SilenceWatch.
inline constexpr Duration kDefaultLease = std::chrono::seconds(5);

// The kernel's state of the bytes sent on a connection.
struct Delivery {
  bool complete = true;        // the peer's host has acknowledged all of them
  bool awaits_answer = false;  // some are in flight, or a probe whether the peer has room for more
  Duration since_answer{};     // since the peer's host acknowledged anything
};

// Detects a silent host on one connection on which something was sent: call update() periodically until all is
// delivered. A peer that accepts nothing, but whose host answers, is not silent.
class SilenceWatch {
 public:
  // How long an answer of the host has been overdue.
  Duration update(const Delivery& delivery, TimePoint now);

 private:
  std::optional<TimePoint> since_;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(FileDescriptor fd) : fd_(std::move(fd)) {}

  // Retries while there is no listener yet, until the deadline or the alarm. Throws Timeout that names the address and
  // the last cause; Internal at once if the address is this host's own and its loopback interface is down. TCP: no
  // delay, and a dead host is detected within about ten seconds; see grant_lease().
  static Socket connect(const Address& address, Deadline deadline, const Alarm& alarm = {});

  // TCP only: breaks the connection once the peer's host has been silent for the lease. Not while bytes are in flight,
  // since a busy or stopped peer accepts nothing either; a SilenceWatch of the delivery() distinguishes the two.
  void grant_lease(Duration lease);
  Delivery delivery() const;

  // Whole buffers. Throw PeerLost (closed or reset; the message names `peer`), Timeout.
  void send_all(std::span<const std::byte> bytes, Deadline deadline, std::string_view peer);
  void receive_all(std::span<std::byte> bytes, Deadline deadline, std::string_view peer);

  // As much as possible without blocking. Empty: closed or broken by the peer. 0: would block.
  std::optional<std::size_t> send_some(std::span<const std::byte> bytes);
  std::optional<std::size_t> receive_some(std::span<std::byte> bytes);
  // The same for several buffers at once (sendmsg / recvmsg); at most the first 64.
  std::optional<std::size_t> send_some(std::span<const std::span<const std::byte>> buffers);

  // Unix sockets: passes an open file descriptor.
  void send_descriptor(int fd, Deadline deadline, std::string_view peer);
  FileDescriptor receive_descriptor(Deadline deadline, std::string_view peer);

  int fd() const;
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }

  // The local address of this connection, numeric: how the accepting side reaches this host.
  std::string local_host() const;
  // The other end's address, numeric; empty on Unix sockets and after the connection has closed.
  std::string peer_host() const;

 private:
  FileDescriptor fd_;
};

// Waits until fd is readable (or writable); false at the deadline.
bool wait_ready(int fd, bool for_writing, Deadline deadline);

// Bytes and open file descriptors, which a Unix socket passes between processes together. Never blocks.
struct Packet {
  std::string bytes;  // empty: the other end is closed
  std::vector<FileDescriptor> descriptors;
  bool truncated = false;  // bytes or descriptors are missing: too many, or this process is at its open-file limit
};
inline constexpr std::size_t kMaxPacketBytes = 8192;
inline constexpr std::size_t kMaxPacketDescriptors = 253;  // the kernel's limit

// A pair of SOCK_SEQPACKET sockets, between which packets keep their borders; close-on-exec. Throws Internal.
std::pair<FileDescriptor, FileDescriptor> make_packet_sockets();

// Returns whether the packet was sent; if not, errno is set (EAGAIN: the other end reads too slowly). `bytes` must not
// be empty; the descriptors stay open in this process.
bool send_packet(int socket, std::string_view bytes, std::span<const int> descriptors = {});

// Returns nothing if no packet is available; then errno is set. The received descriptors are close-on-exec.
std::optional<Packet> receive_packet(int socket, std::size_t max_bytes = kMaxPacketBytes);

class Listener {
 public:
  // `host` is the address to bind, "0.0.0.0" for all (address() then has that host); port 0: any free one.
  static Listener tcp(const std::string& host, std::uint16_t port = 0);
  // In the abstract namespace; without a name, a fresh random one.
  static Listener unix_abstract(std::string name = "");

  const Address& address() const { return address_; }
  int fd() const { return fd_.get(); }
  // A pending connection; empty if there is none now.
  std::optional<Socket> accept_now();

 private:
  Listener(FileDescriptor fd, Address address) : fd_(std::move(fd)), address_(std::move(address)) {}
  FileDescriptor fd_;
  Address address_;
};

}  // namespace hvd
