#include "parameters/pipe.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/net/shared_memory.h"

namespace hvd {

namespace {

constexpr std::size_t kHeadBytes = 4096;
constexpr std::size_t kSharedBytes = kHeadBytes + 2 * kPipeBytes;
constexpr Duration kLeaseCheckInterval = std::chrono::milliseconds(200);
constexpr Duration kSocketCheckInterval = std::chrono::milliseconds(50);
constexpr std::size_t kMaxWakeups = 4096;  // at once; a worker sends one each time that the server sleeps

// The positions of a ring, in bytes since the start; each written by one end.
struct RingHead {
  alignas(128) std::atomic<std::uint64_t> written;
  alignas(128) std::atomic<std::uint64_t> read;
};

// At the beginning of the memory; the data of both rings follow. All zero bytes initially.
struct SharedHead {
  RingHead requests;
  RingHead answers;
  Signal worker_wakeups;                                  // the server has answered, or made room
  alignas(128) std::atomic<std::uint32_t> server_sleeps;  // it wants a byte on the socket
};
static_assert(sizeof(SharedHead) <= kHeadBytes);

// A range of a file mapped twice, one copy behind the other: what goes over its end is contiguous.
class MirroredRange {
 public:
  MirroredRange(int fd, std::size_t begin) {
    void* const both = mmap(nullptr, 2 * kPipeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED) throw Internal("cannot reserve memory for a pipe: " + error_text(errno));
    data_ = static_cast<std::byte*>(both);
    for (std::byte* const part : {data_, data_ + kPipeBytes}) {
      void* const mapped =
          mmap(part, kPipeBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(begin));
      if (mapped == MAP_FAILED) {
        munmap(data_, 2 * kPipeBytes);
        throw Internal("cannot map memory of a pipe: " + error_text(errno));
      }
    }
  }
  ~MirroredRange() { munmap(data_, 2 * kPipeBytes); }
  MirroredRange(const MirroredRange&) = delete;
  MirroredRange& operator=(const MirroredRange&) = delete;

  std::byte* at(std::uint64_t position) const { return data_ + position % kPipeBytes; }

 private:
  std::byte* data_ = nullptr;
};

class SharedPipe final : public Pipe {
 public:
  SharedPipe(Socket socket, SharedMemory memory, bool is_server, const WaitPolicy& policy)
      : socket_(std::move(socket)),
        memory_(std::move(memory)),
        head_(*reinterpret_cast<SharedHead*>(memory_.data())),
        requests_(memory_.fd(), kHeadBytes),
        answers_(memory_.fd(), kHeadBytes + kPipeBytes),
        is_server_(is_server),
        wait_(policy) {}

  std::span<const std::byte> input() override {
    const std::uint64_t there = in().written.load(std::memory_order_acquire) - consumed_;
    if (there > kPipeBytes) throw Internal("the positions of a parameter server's pipe were overwritten");
    if (is_flooded_) throw Internal("unexpected bytes on the socket of a parameter server's pipe");
    if (is_closed_ && (is_server_ || there == 0)) throw PeerLost("the connection is closed");
    return {in_memory().at(consumed_), static_cast<std::size_t>(there)};
  }

  void consume(std::size_t bytes) override {
    consumed_ += bytes;
    in().read.store(consumed_, std::memory_order_release);
    did_something_ = true;
  }

  // Looks how far the other end has read only if it must: that is a cache line which the other end writes.
  std::byte* room(std::size_t bytes) override {
    if (committed_ - read_ + bytes > kPipeBytes) read_ = out().read.load(std::memory_order_acquire);
    const std::uint64_t used = committed_ - read_;
    if (used > kPipeBytes) throw Internal("the positions of a parameter server's pipe were overwritten");
    return used + bytes > kPipeBytes ? nullptr : out_memory().at(committed_);
  }

  void commit(std::size_t bytes) override {
    committed_ += bytes;
    did_something_ = true;
  }

  void flush() override {
    if (!std::exchange(did_something_, false)) return;
    out().written.store(std::min(committed_, hold_), std::memory_order_release);
    if (is_server_) {
      head_.worker_wakeups.increment_and_wake();
    } else {
      wake_server();
    }
  }

  std::uint64_t committed() const override { return committed_; }

  void hold_behind(std::uint64_t position) override {
    hold_ = position;
    did_something_ = true;
  }

  bool has_output() const override { return false; }
  int fd() const override { return socket_.fd(); }

  void notice_event() override { look_at_socket(); }

  void is_to_sleep(bool sleeps) override {
    head_.server_sleeps.store(sleeps ? 1 : 0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // see wake_server()
  }

  void wait(Deadline deadline) override {
    const std::uint32_t now = head_.worker_wakeups.value.load(std::memory_order_acquire);
    if (now == std::exchange(seen_, now)) {
      const Deadline limit = std::min(deadline, deadline_after(kSocketCheckInterval));
      seen_ = wait_.wait_change(head_.worker_wakeups, now, limit, nullptr);
      if (seen_ == now) look_at_socket();
    }
  }

 private:
  // Of the fences here and in is_to_sleep() one is first: either the server, which looks once more before it sleeps,
  // sees the new positions, or this end sees that it sleeps.
  void wake_server() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (head_.server_sleeps.load(std::memory_order_relaxed) == 0 || head_.server_sleeps.exchange(0) == 0) return;
    const std::byte wakeup{1};
    if (!socket_.send_some(std::span(&wakeup, 1))) is_closed_ = true;
  }

  // Takes the bytes that have woken this end, but does not run after a peer that sends without end.
  void look_at_socket() {
    std::array<std::byte, 64> wakeups;
    for (std::size_t all = 0; !is_flooded_;) {
      const auto count = socket_.receive_some(wakeups);
      if (!count) is_closed_ = true;
      if (!count || *count == 0) return;
      is_flooded_ = (all += *count) > kMaxWakeups;
    }
  }

  RingHead& in() const { return is_server_ ? head_.requests : head_.answers; }
  RingHead& out() const { return is_server_ ? head_.answers : head_.requests; }
  const MirroredRange& in_memory() const { return is_server_ ? requests_ : answers_; }
  const MirroredRange& out_memory() const { return is_server_ ? answers_ : requests_; }

  Socket socket_;
  const SharedMemory memory_;
  SharedHead& head_;
  const MirroredRange requests_, answers_;
  const bool is_server_;
  AdaptiveWait wait_;
  std::uint64_t consumed_ = 0, committed_ = 0;
  std::uint64_t hold_ = kHoldNothing;
  std::uint64_t read_ = 0;  // how far the other end had read at the last look
  std::uint32_t seen_ = 0;  // value of worker_wakeups at the last look
  bool did_something_ = false;
  bool is_closed_ = false;
  bool is_flooded_ = false;
};

class SocketPipe final : public Pipe {
 public:
  SocketPipe(Socket socket, bool is_server, Duration lease)
      : socket_(std::move(socket)), is_server_(is_server), lease_(lease) {
    socket_.grant_lease(lease);
    output_.reserve(kPipeBytes);
  }

  std::span<const std::byte> input() override {
    if (is_readable_ && !is_closed_) fill();
    if (is_closed_ && (is_server_ || begin_ == end_)) {
      throw PeerLost(is_silent_ ? "its host does not answer" : "the connection is closed");
    }
    return {input_.get() + begin_, end_ - begin_};
  }

  void consume(std::size_t bytes) override { begin_ += bytes; }

  std::byte* room(std::size_t bytes) override {
    if (output_.size() + bytes > kPipeBytes) {
      flush();
      forgotten_ += sent_;
      output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(std::exchange(sent_, 0)));
      if (output_.size() + bytes > kPipeBytes) return nullptr;
    }
    prepared_ = output_.size();
    uncommitted_ = bytes;
    output_.resize(prepared_ + bytes);
    return output_.data() + prepared_;
  }

  void commit(std::size_t bytes) override {
    output_.resize(prepared_ + bytes);
    uncommitted_ = 0;
  }

  void flush() override {
    while (sent_ < sendable()) {
      const auto count = socket_.send_some(std::span<const std::byte>(output_).first(sendable()).subspan(sent_));
      if (!count) {
        is_closed_ = true;
        throw PeerLost("the connection is closed");
      }
      if (*count == 0) return;
      sent_ += *count;
      if (!std::exchange(is_in_flight_, true)) next_lease_check_ = deadline_after(kLeaseCheckInterval);
    }
    if (sent_ < output_.size()) return;
    forgotten_ += output_.size();
    output_.clear();
    sent_ = 0;
  }

  std::uint64_t committed() const override { return forgotten_ + output_.size() - uncommitted_; }
  void hold_behind(std::uint64_t position) override { hold_ = position; }

  bool has_output() const override { return sent_ < sendable(); }
  int fd() const override { return socket_.fd(); }
  void notice_event() override { is_readable_ = true; }
  void is_to_sleep(bool) override {}

  void check_lease(TimePoint now) override {
    if (now < next_lease_check()) return;
    next_lease_check_ = now + kLeaseCheckInterval;
    const Delivery delivery = socket_.delivery();
    is_in_flight_ = !delivery.complete;
    if (silence_.update(delivery, now) >= lease_) is_closed_ = is_silent_ = true;
  }

  Deadline next_lease_check() const override { return is_in_flight_ ? next_lease_check_ : Deadline::max(); }

  void wait(Deadline deadline) override {
    if (has_output()) {
      wait_ready(socket_.fd(), true, std::min(deadline, deadline_after(1ms)));
    } else {
      wait_ready(socket_.fd(), false, deadline);
    }
  }

 private:
  // How much of output_ may be sent.
  std::size_t sendable() const {
    if (hold_ <= forgotten_) return 0;
    return static_cast<std::size_t>(std::min<std::uint64_t>(hold_ - forgotten_, output_.size()));
  }

  // Reads where there is room; what is unread moves to the beginning if it reaches the end.
  void fill() {
    if (begin_ == end_) {
      begin_ = end_ = 0;
    } else if (end_ == kPipeBytes && begin_ > 0) {
      std::memmove(input_.get(), input_.get() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    if (end_ == kPipeBytes) return;
    const auto count = socket_.receive_some({input_.get() + end_, kPipeBytes - end_});
    if (!count) {
      is_closed_ = true;
    } else {
      end_ += *count;
      is_readable_ = !is_server_ || *count > 0;  // a worker has no event loop, and tries each time
    }
  }

  Socket socket_;
  const bool is_server_;
  const Duration lease_;
  SilenceWatch silence_;
  bool is_in_flight_ = false;  // something was sent of which it is not known that it has arrived
  Deadline next_lease_check_ = Deadline::max();
  bool is_silent_ = false;
  bool is_readable_ = true;
  // Not cleared: a connection that is idle takes address space alone.
  const std::unique_ptr<std::byte[]> input_ = std::make_unique_for_overwrite<std::byte[]>(kPipeBytes);
  std::size_t begin_ = 0, end_ = 0;
  std::vector<std::byte> output_;  // the bytes of the stream from position forgotten_ on
  std::uint64_t forgotten_ = 0;
  std::uint64_t hold_ = kHoldNothing;
  std::size_t sent_ = 0, prepared_ = 0;
  std::size_t uncommitted_ = 0;  // at the end of output_: what room() has added and commit() has not confirmed
  bool is_closed_ = false;
};

}  // namespace

std::unique_ptr<Pipe> make_server_pipe(Socket socket, bool shares_memory, Duration lease, Deadline deadline) {
  if (!shares_memory) return std::make_unique<SocketPipe>(std::move(socket), true, lease);
  SharedMemory memory = SharedMemory::create(kSharedBytes, "hvd-parameters", kHeadBytes);
  socket.send_descriptor(memory.fd(), deadline, "a worker");
  return std::make_unique<SharedPipe>(std::move(socket), std::move(memory), true, WaitPolicy{});
}

std::unique_ptr<Pipe> make_worker_pipe(Socket socket, bool shares_memory, Duration lease, const WaitPolicy& policy,
                                       Deadline deadline) {
  if (!shares_memory) return std::make_unique<SocketPipe>(std::move(socket), false, lease);
  FileDescriptor fd = socket.receive_descriptor(deadline, "a parameter server");
  SharedMemory memory = SharedMemory::map(std::move(fd), kSharedBytes, kHeadBytes);
  return std::make_unique<SharedPipe>(std::move(socket), std::move(memory), false, policy);
}

}  // namespace hvd
