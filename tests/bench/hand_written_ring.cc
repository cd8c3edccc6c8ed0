#include "tests/bench/hand_written_ring.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <liburing.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <hvd.hpp>

namespace hvd::bench {

namespace {

constexpr std::size_t kPieceFloats = 64 << 10;  // received at once: they stay in a cache until they are added

long checked(long result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

struct Endpoint {
  std::uint32_t address = 0;  // in network order
  std::int32_t port = 0;
};

// This host's first address that others reach; without one, all ranks are here.
std::uint32_t local_address() {
  ifaddrs* all = nullptr;
  checked(getifaddrs(&all), "getifaddrs");
  std::uint32_t address = htonl(INADDR_LOOPBACK);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const bool usable = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr;
    break;
  }
  freeifaddrs(all);
  return address;
}

// The sockets to the next rank and from the one before, and the order of slices.
class Connected : public HandWrittenRing {
 public:
  Connected() {
    const int listener = static_cast<int>(checked(socket(AF_INET, SOCK_STREAM, 0), "socket"));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = local_address();
    socklen_t length = sizeof here;
    checked(bind(listener, reinterpret_cast<sockaddr*>(&here), length), "bind");
    checked(listen(listener, 1), "listen");
    checked(getsockname(listener, reinterpret_cast<sockaddr*>(&here), &length), "getsockname");
    const std::vector<std::int64_t> own{here.sin_addr.s_addr, here.sin_port};
    const std::vector<std::int64_t> of_all = hvd::allgather(own);
    const auto at = static_cast<std::size_t>((rank_ + 1) % size_) * 2;
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_addr.s_addr = static_cast<std::uint32_t>(of_all[at]);
    there.sin_port = static_cast<std::uint16_t>(of_all[at + 1]);
    to_ = static_cast<int>(checked(socket(AF_INET, SOCK_STREAM, 0), "socket"));
    checked(connect(to_, reinterpret_cast<sockaddr*>(&there), sizeof there), "connect");
    from_ = static_cast<int>(checked(accept(listener, nullptr, nullptr), "accept"));
    close(listener);
    const int on = 1;
    checked(setsockopt(to_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
  }
  ~Connected() override {
    close(to_);
    close(from_);
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;

  void allreduce(std::span<float> values) final {
    const auto slice = [&](int number) {
      const auto n = static_cast<std::size_t>(size_);
      const auto i = static_cast<std::size_t>(((number % size_) + size_) % size_);
      const std::size_t begin = values.size() * i / n;
      return values.subspan(begin, values.size() * (i + 1) / n - begin);
    };
    for (int step = 0; step < 2 * (size_ - 1); ++step) {
      const std::span<const float> out = slice(rank_ - step);
      const std::span<float> in = slice(rank_ - step - 1);
      exchange(out, in, step < size_ - 1);
    }
  }

 protected:
  using Bytes = std::span<std::byte>;

  // Sends all of `out`, and adds to `in` what is received, or replaces it.
  virtual void exchange(std::span<const float> out, std::span<float> in, bool add) = 0;

  int to_ = -1, from_ = -1;

  // Receives a slice, piece by piece.
  class Incoming {
   public:
    Incoming(std::span<float> values, bool add, std::vector<float>& scratch)
        : values_(values), add_(add), scratch_(scratch) {
      scratch_.resize(kPieceFloats);
    }
    bool complete() const { return done_ == values_.size(); }
    Bytes room() const {
      const std::size_t floats = std::min(kPieceFloats, values_.size() - done_);
      const std::span<float> piece = add_ ? std::span(scratch_).first(floats) : values_.subspan(done_, floats);
      return std::as_writable_bytes(piece).subspan(filled_);
    }
    void take(std::size_t bytes) {
      filled_ += bytes;
      const std::size_t floats = std::min(kPieceFloats, values_.size() - done_);
      if (filled_ < floats * sizeof(float)) return;
      float* const to = values_.data() + done_;
      for (std::size_t i = 0; add_ && i < floats; ++i) to[i] += scratch_[i];
      done_ += floats;
      filled_ = 0;
    }

   private:
    std::span<float> values_;
    bool add_;
    std::vector<float>& scratch_;
    std::size_t done_ = 0;    // values
    std::size_t filled_ = 0;  // bytes of the piece
  };

  std::vector<float> scratch_;

 private:
  const int rank_ = hvd::rank(), size_ = hvd::size();
};

class OverSockets : public Connected {
 public:
  explicit OverSockets(bool zerocopy) : zerocopy_(zerocopy) {
    for (const int socket : {to_, from_}) checked(fcntl(socket, F_SETFL, O_NONBLOCK), "fcntl");
    const int on = 1;
    if (zerocopy_) checked(setsockopt(to_, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), "SO_ZEROCOPY");
  }

 private:
  void exchange(std::span<const float> values, std::span<float> in, bool add) override {
    std::span<const std::byte> out = std::as_bytes(values);
    Incoming incoming(in, add, scratch_);
    while (!out.empty() || !incoming.complete()) {
      std::array<pollfd, 2> sockets{pollfd{to_, static_cast<short>(out.empty() ? 0 : POLLOUT), 0},
                                    pollfd{from_, static_cast<short>(incoming.complete() ? 0 : POLLIN), 0}};
      checked(poll(sockets.data(), sockets.size(), -1), "poll");
      if (zerocopy_ && (sockets[0].revents & POLLERR) != 0) reap();
      if ((sockets[0].revents & POLLOUT) != 0) out = out.subspan(send_some(out));
      if ((sockets[1].revents & POLLIN) == 0) continue;
      const Bytes room = incoming.room();
      const long got = checked(::recv(from_, room.data(), room.size(), 0), "recv");
      if (got == 0) throw std::runtime_error("the rank before has left");
      incoming.take(static_cast<std::size_t>(got));
    }
    while (ended_ != sent_) {  // what the kernel still reads must not change
      pollfd socket{to_, 0, 0};
      checked(poll(&socket, 1, -1), "poll");
      reap();
    }
  }

  std::size_t send_some(std::span<const std::byte> out) {
    const long sent = ::send(to_, out.data(), out.size(), MSG_NOSIGNAL | (zerocopy_ ? MSG_ZEROCOPY : 0));
    if (sent < 0 && errno == EAGAIN) return 0;
    if (sent < 0 && errno == ENOBUFS && ended_ != sent_) return 0;  // as much as the kernel keeps track of
    checked(sent, "send");
    if (zerocopy_) ++sent_;
    return static_cast<std::size_t>(sent);
  }

  void reap() {
    alignas(cmsghdr) std::array<char, 128> control{};
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(to_, &message, MSG_ERRQUEUE) < 0) {
      if (errno != EAGAIN) checked(-1, "recvmsg");
      return;
    }
    const auto* const error = reinterpret_cast<const sock_extended_err*>(CMSG_DATA(CMSG_FIRSTHDR(&message)));
    if (error->ee_errno == 0 && error->ee_origin == SO_EE_ORIGIN_ZEROCOPY) ended_ = error->ee_data + 1;
  }

  const bool zerocopy_;
  std::uint32_t sent_ = 0, ended_ = 0;  // calls with MSG_ZEROCOPY
};

class OverUring : public Connected {
 public:
  OverUring() {
    const int result = io_uring_queue_init(8, &ring_, IORING_SETUP_SINGLE_ISSUER);
    if (result < 0) throw std::system_error(-result, std::generic_category(), "io_uring_queue_init");
  }
  ~OverUring() override { io_uring_queue_exit(&ring_); }
  OverUring(const OverUring&) = delete;
  OverUring& operator=(const OverUring&) = delete;

 private:
  static constexpr std::uint64_t kSent = 1, kReceived = 2;

  void exchange(std::span<const float> values, std::span<float> in, bool add) override {
    std::span<const std::byte> out = std::as_bytes(values);
    Incoming incoming(in, add, scratch_);
    bool sends = false, receives = false;
    while (!out.empty() || !incoming.complete()) {
      if (!out.empty() && !sends)
        submit([&](io_uring_sqe* entry) {
          io_uring_prep_send(entry, to_, out.data(), out.size(), MSG_NOSIGNAL | MSG_WAITALL);
          return kSent;
        });
      if (!incoming.complete() && !receives)
        submit([&](io_uring_sqe* entry) {
          io_uring_prep_recv(entry, from_, incoming.room().data(), incoming.room().size(), MSG_WAITALL);
          return kReceived;
        });
      sends = !out.empty();
      receives = !incoming.complete();
      const int waited = io_uring_submit_and_wait(&ring_, 1);
      if (waited < 0) throw std::system_error(-waited, std::generic_category(), "io_uring_submit_and_wait");
      io_uring_cqe* completion = nullptr;
      while (io_uring_peek_cqe(&ring_, &completion) == 0) {
        if (completion->res <= 0) throw std::system_error(-completion->res, std::generic_category(), "io_uring");
        const auto bytes = static_cast<std::size_t>(completion->res);
        if (io_uring_cqe_get_data64(completion) == kSent) {
          out = out.subspan(bytes);
          sends = false;
        } else {
          incoming.take(bytes);
          receives = false;
        }
        io_uring_cqe_seen(&ring_, completion);
      }
    }
  }

  template <typename Prepare>
  void submit(const Prepare& prepare) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    const std::uint64_t kind = prepare(entry);
    io_uring_sqe_set_data64(entry, kind);
  }

  io_uring ring_{};
};

}  // namespace

std::unique_ptr<HandWrittenRing> connect_ring(RingCalls calls) {
  if (calls == RingCalls::uring) return std::make_unique<OverUring>();
  return std::make_unique<OverSockets>(calls == RingCalls::zerocopy);
}

}  // namespace hvd::bench
