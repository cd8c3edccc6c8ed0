#include "core/control/tree/control_links.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/process.h"
#include "core/control/tree/control_channel.h"
#include "core/net/byte_codec.h"

namespace hvd {

namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::uint64_t kStopToken = ~std::uint64_t{0};
constexpr std::uint64_t kTimerToken = kStopToken - 1;
constexpr Duration kTick = std::chrono::milliseconds(200);

std::string address_key(int rank) { return "control/address/" + std::to_string(rank); }

Status decode_status(ByteReader& reader) {
  const auto code = reader.get<std::uint8_t>();
  const auto culprit = reader.get<std::int32_t>();
  std::string message = reader.get_string();
  reader.expect_end();
  const bool known = code > 0 && code <= static_cast<std::uint8_t>(StatusCode::internal);
  if (!known || culprit < kNobody) throw Internal("malformed message: status");
  return Status(static_cast<StatusCode>(code), std::move(message), culprit);
}

Bytes encode_status(const Status& status) {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(status.code()));
  writer.put(static_cast<std::int32_t>(status.culprit()));
  writer.put_string(status.message());
  return writer.take();
}

// Runs `wait`; a Timeout names this rank of the job as the culprit.
template <class Wait>
auto waiting_for(int job_rank, const Wait& wait) {
  try {
    return wait();
  } catch (const Timeout& error) {
    throw Error(Status(error.code(), error.what(), job_rank));
  }
}

std::string silent_for(Duration silence) { return "its host has not answered for " + age_text(silence); }

}  // namespace

// The connection to one neighbour.
class ControlLinks::Link {
 public:
  Link(int neighbour, Socket connection) : rank(neighbour), socket(std::move(connection)) {}

  // Has epoll report events with this token. Before the links thread starts.
  bool watch(int epoll, std::uint64_t token) {
    epoll_ = epoll;
    token_ = token;
    return control_epoll(EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
  }
  // Sends the frame, as soon as the socket has room. False if the connection is broken. Any thread.
  bool enqueue(std::span<const std::byte> frame) {
    const MutexLock lock(mutex_);
    if (broken_) return false;
    outbox_.insert(outbox_.end(), frame.begin(), frame.end());
    flush();
    return true;
  }
  // The socket has room. True if it has too little.
  bool send_more() {
    const MutexLock lock(mutex_);
    flush();
    return pending();
  }
  // Waits until everything is sent; others may send meanwhile.
  void drain(Deadline deadline) {
    while (send_more() && wait_ready(socket.fd(), true, deadline)) {
    }
  }
  // As Socket::receive_some(); throws if this rank cannot receive, or could not send. Links thread.
  std::optional<std::size_t> receive_some(std::span<std::byte> bytes) {
    const auto count = socket.receive_some(bytes);
    const MutexLock lock(mutex_);
    if (!count && !failure_.ok()) throw Error(failure_);
    return count;
  }
  // Nothing is sent or received any more.
  void give_up() {
    lost = true;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, socket.fd(), nullptr);
    const MutexLock lock(mutex_);
    refuse_more();
  }
  // After the links thread has ended; others may still try to send.
  void close() {
    const MutexLock lock(mutex_);
    refuse_more();
    socket.close();
  }

  const int rank;
  Socket socket;
  // Links thread only.
  FrameReader reader;
  SilenceWatch silence;
  bool departed = false;  // the peer has sent a goodbye
  bool lost = false;

 private:
  bool control_epoll(int operation, std::uint32_t events) const {
    epoll_event event{.events = events, .data = {.u64 = token_}};
    return epoll_ctl(epoll_, operation, socket.fd(), &event) == 0;
  }
  void refuse_more() REQUIRES(mutex_) {
    broken_ = true;
    outbox_.clear();
    sent_ = 0;
  }
  bool pending() const REQUIRES(mutex_) { return !broken_ && sent_ < outbox_.size(); }
  void flush() REQUIRES(mutex_) {
    while (pending()) {
      try {
        const auto count = socket.send_some(std::span<const std::byte>(outbox_).subspan(sent_));
        broken_ = !count;
        if (count == 0u) break;
        sent_ += count.value_or(0);
      } catch (const Error& error) {
        broken_ = true;
        failure_ = error.status();
        shutdown(socket.fd(), SHUT_RDWR);  // which the links thread notices, and reports the failure
      }
    }
    const bool waits = pending();
    if (!waits) {
      outbox_.clear();
      sent_ = 0;
    }
    if (epoll_ < 0 || waits == watching_writes_) return;
    const std::uint32_t events = waits ? EPOLLIN | EPOLLRDHUP | EPOLLOUT : EPOLLIN | EPOLLRDHUP;
    if (control_epoll(EPOLL_CTL_MOD, events)) watching_writes_ = waits;
  }

  // Set before the thread starts.
  int epoll_ = -1;
  std::uint64_t token_ = 0;

  Mutex mutex_;
  Bytes outbox_ GUARDED_BY(mutex_);
  std::size_t sent_ GUARDED_BY(mutex_) = 0;          // bytes of the outbox that have been sent
  bool watching_writes_ GUARDED_BY(mutex_) = false;  // epoll reports when the socket has room again
  bool broken_ GUARDED_BY(mutex_) = false;           // nothing more can be sent
  Status failure_ GUARDED_BY(mutex_);                // of this rank, to send
};

ControlLinks::ControlLinks(const Topology& topology, const ControlTree& tree, Store& store, const JobKey& key,
                           const std::string& local_host, Duration lease, AbortFlag& abort, const Log& log,
                           OnMessage on_message, OnBreak on_break, OnAbort on_abort, Deadline deadline)
    : topology_(topology),
      lease_(lease),
      abort_(abort),
      log_(log),
      on_message_(std::move(on_message)),
      on_break_(std::move(on_break)),
      on_abort_(std::move(on_abort)) {
  if (topology.size == 1) return;
  try {
    connect_neighbours(tree, store, key, local_host, deadline);
    watch_links();
    thread_ = start_thread("hvd-links", [this] { run(); });
  } catch (...) {
    // Otherwise ranks that have connected to this one would take the closing of their connections for its death.
    fail(current_exception_status());
    throw;
  }
}

ControlLinks::~ControlLinks() { stop(); }

void ControlLinks::connect_neighbours(const ControlTree& tree, Store& store, const JobKey& key,
                                      const std::string& local_host, Deadline deadline) {
  // The listener first: children need not wait until this rank has connected to its parent.
  std::optional<Acceptor> acceptor;
  if (!tree.is_leaf()) {
    acceptor.emplace(Listener::tcp(local_host), key, Purpose::control, log_);
    store.set(address_key(topology_.rank), acceptor->address().to_string());
  }
  if (!tree.is_root()) {
    links_.push_back(std::make_unique<Link>(
        tree.parent, waiting_for(topology_.job_rank_of(tree.parent), [&] {
          const Address address = Address::parse(store.get(address_key(tree.parent), deadline));
          return connect_authenticated(address, key, Purpose::control, topology_.rank, deadline, store.alarm());
        })));
  }
  if (acceptor) accept_children(tree, *acceptor, store, deadline);
}

void ControlLinks::watch_links() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  stop_event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const auto watch = [this](const FileDescriptor& fd, std::uint64_t token) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = token}};
    return fd && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
  };
  if (!epoll_ || !watch(stop_event_, kStopToken) || !watch(timer_, kTimerToken)) {
    throw Internal("cannot watch the control connections: out of file descriptors?");
  }
  for (std::size_t i = 0; i < links_.size(); ++i) {
    links_[i]->socket.grant_lease(lease_);
    if (!links_[i]->watch(epoll_.get(), i)) {
      throw Internal("cannot watch the control connection to " + topology_.describe(links_[i]->rank));
    }
  }
}

void ControlLinks::accept_children(const ControlTree& tree, Acceptor& acceptor, Store& store, Deadline deadline) {
  std::set<int> missing;
  for (const auto& [child, ranks] : tree.children) missing.insert(child);
  while (!missing.empty()) {
    const int awaited = *missing.begin();
    Peer peer = waiting_for(topology_.job_rank_of(awaited), [&] {
      return acceptor.accept(deadline, "the control connection of " + topology_.describe(awaited), store.alarm());
    });
    if (missing.erase(peer.rank) == 0) {
      log_.warning("a second or impossible control connection for rank " + std::to_string(peer.rank) + " was refused");
      continue;
    }
    links_.push_back(std::make_unique<Link>(peer.rank, std::move(peer.socket)));
  }
}

void ControlLinks::run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const auto& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kStopToken) return;
      try {
        if (event.data.u64 == kTimerToken) {
          check_leases();
          continue;
        }
        Link& link = *links_[event.data.u64];
        if ((event.events & EPOLLOUT) != 0) {
          link.send_more();
          start_timer();  // the last tick may have found everything delivered
        }
        if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0) read(link);
      } catch (...) {
        fail(current_exception_status());
      }
    }
  }
}

void ControlLinks::read(Link& link) {
  std::array<std::byte, kReadBytes> buffer;
  std::optional<std::size_t> count;
  try {
    count = link.receive_some(buffer);
  } catch (...) {
    if (!link.departed) fail(current_exception_status());  // sent on this link, too, if it can send
    return link.give_up();
  }
  if (!count) {
    const Duration silence = link.socket.delivery().since_answer;
    return lose(link, silence < lease_ ? "its connection closed without a goodbye" : silent_for(silence));
  }
  try {
    link.reader.feed(std::span(buffer).first(*count));
    while (auto frame = link.reader.next()) handle_frame(link, *frame);
  } catch (const Error& error) {
    lose(link, std::string("it sent a malformed control message (") + error.what() + ")");
  }
}

void ControlLinks::check_leases() {
  std::uint64_t expirations;
  [[maybe_unused]] const auto count = ::read(timer_.get(), &expirations, sizeof expirations);
  timing_ = false;  // what is sent from now on starts it again
  for (auto& link : links_) {
    if (link->departed || link->lost) continue;
    const Delivery delivery = link->socket.delivery();
    if (!delivery.complete) start_timer();
    const Duration silence = link->silence.update(delivery, Clock::now());
    if (silence >= lease_) lose(*link, silent_for(silence));
  }
}

// No effect if it is running. Any thread.
void ControlLinks::start_timer() {
  if (timing_.exchange(true)) return;
  itimerspec once{};
  once.it_value.tv_nsec = std::chrono::nanoseconds(kTick).count();
  timerfd_settime(timer_.get(), 0, &once, nullptr);
}

void ControlLinks::handle_frame(Link& link, const Bytes& frame) {
  ByteReader reader(frame);
  switch (static_cast<FrameKind>(reader.get<std::uint8_t>())) {
    case FrameKind::message: on_message_(link.rank, Bytes(frame.begin() + 1, frame.end())); return;
    case FrameKind::goodbye: link.departed = true; return;
    case FrameKind::abort: raise_and_notify(decode_status(reader), link.rank); return;
    case FrameKind::break_lock: {
      const auto lock_number = reader.get<std::uint64_t>();
      reader.expect_end();
      if (forward_break(lock_number, link.rank)) on_break_(lock_number);
      return;
    }
  }
  throw Internal("malformed message: unknown kind of frame");
}

void ControlLinks::lose(Link& link, const std::string& how) {
  link.give_up();
  if (link.departed) return;
  raise_and_notify(Status(StatusCode::peer_lost, topology_.describe(link.rank) + " is lost: " + how,
                          topology_.job_rank_of(link.rank)),
                   link.rank);
}

// This rank cannot go on.
void ControlLinks::fail(const Status& own) {
  const bool is_first = abort_.raise(Status(own.code(), own.message(), culprit_of(own, topology_)),
                                     [&](const Status&) { notify_neighbours(status_for_peers(own, topology_), -1); });
  if (!is_first) notify_neighbours(abort_.reason(), -1);
}

// The flag may have been raised by another process set's links, which have other neighbours: these notify their
// neighbours in any case.
void ControlLinks::raise_and_notify(const Status& reason, int except_rank) {
  if (abort_.raise(reason, [&](const Status& first) { notify_neighbours(first, except_rank); })) {
    log_.debug("aborting: " + reason.message());
  } else {
    notify_neighbours(abort_.reason(), except_rank);
  }
}

void ControlLinks::notify_neighbours(const Status& reason, int except_rank) {
  if (abort_sent_.exchange(true)) return;
  if (on_abort_) return on_abort_(reason);
  const Bytes payload = encode_status(reason);
  for (auto& link : links_) {
    if (link->rank != except_rank) enqueue(*link, FrameKind::abort, payload);
  }
}

void ControlLinks::send(int to, const Bytes& payload) {
  const auto it = std::find_if(links_.begin(), links_.end(), [&](const auto& link) { return link->rank == to; });
  if (it != links_.end()) enqueue(**it, FrameKind::message, payload);
}

// Sends to the neighbours of this rank. False if the number is already known.
bool ControlLinks::forward_break(std::uint64_t lock_number, int except_rank) {
  std::uint64_t known = break_requested_.load();
  do {
    if (lock_number <= known) return false;
  } while (!break_requested_.compare_exchange_weak(known, lock_number));
  ByteWriter writer;
  writer.put(lock_number);
  const Bytes payload = writer.take();
  for (auto& link : links_) {
    if (link->rank != except_rank) enqueue(*link, FrameKind::break_lock, payload);
  }
  return true;
}

void ControlLinks::enqueue(Link& link, FrameKind kind, std::span<const std::byte> payload) {
  Bytes tagged;
  tagged.reserve(payload.size() + 1);
  tagged.push_back(static_cast<std::byte>(kind));
  tagged.insert(tagged.end(), payload.begin(), payload.end());
  if (link.enqueue(make_frame(tagged))) start_timer();
}

void ControlLinks::close(Deadline deadline) {
  if (!thread_.joinable()) return;
  for (auto& link : links_) enqueue(*link, FrameKind::goodbye, {});
  for (auto& link : links_) link->drain(deadline);
  stop();
}

void ControlLinks::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(stop_event_.get(), &one, sizeof one);
  thread_.join();
  for (auto& link : links_) link->close();
}

// Takes no lock: another thread may have held it at the fork.
void ControlLinks::abandon_in_child() noexcept {
  for (const auto& link : links_) link->socket.close();
}

}  // namespace hvd
