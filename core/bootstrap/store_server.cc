#include "core/bootstrap/store_server.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/net/frame.h"

namespace hvd {

namespace {

constexpr std::size_t kReadBytesPerClient = 64 * 1024;

struct Client {
  explicit Client(Peer peer) : socket(std::move(peer.socket)), rank(peer.rank), reader(kMaxStoreFrameBytes) {}

  Socket socket;
  int rank;
  FrameReader reader;
  // Until an answer is sent completely nothing more is read: a client holds at most one frame in and one out.
  Bytes unsent;
  std::size_t sent = 0;
  StoreSource::RequestId request_id = 0;  // of the request that waits for its answer
  bool waits_for_get = false;             // that request is a get
  bool store_lost = false;
  bool watched_for_writing = false;
};

// The client has disconnected (the normal end), or the store is lost.
struct ClientGone {};

itimerspec at(Deadline deadline) {
  itimerspec timer{};  // all zero: never
  if (deadline == Deadline::max()) return timer;
  const auto ns = std::max<std::int64_t>(1, std::chrono::nanoseconds(deadline.time_since_epoch()).count());
  timer.it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  return timer;
}

}  // namespace

class StoreServer::State {
 public:
  State(const JobKey& key, const std::string& bind_host, StoreSource& source, const Log& log, std::uint16_t port)
      : source_(source),
        log_(log),
        acceptor_(Listener::tcp(bind_host, port), key, Purpose::store, log),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!epoll_ || !timer_) throw Internal("cannot open the store's event descriptors: " + error_text(errno));
    control(EPOLL_CTL_ADD, timer_.get(), EPOLLIN);
    control(EPOLL_CTL_ADD, acceptor_.fd(), EPOLLIN);
  }

  ~State() {
    for (const auto& [fd, client] : clients_) source_.forget(client.request_id);
  }

  const Address& address() const { return acceptor_.address(); }
  int fd() const { return epoll_.get(); }

  void serve_now() {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    if (count < 0 && errno != EINTR) throw Internal("epoll_wait in the job's store");
    bool somebody_new = false;
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (clients_.contains(fd)) {
        serve(fd, [this](Client& client) { converse(client); });
      } else {
        somebody_new = true;  // the acceptor or its deadline; harmless for a client that left during this batch
      }
    }
    // After the batch, so that a new client cannot get the descriptor of one whose events are still listed.
    if (somebody_new) accept_all();
  }

 private:
  void control(int operation, int fd, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) throw Internal("epoll_ctl in the job's store");
  }

  void accept_all() {
    while (auto peer = acceptor_.accept_now()) {
      const int fd = peer->socket.fd();
      clients_.try_emplace(fd, std::move(*peer));
      serve(fd, [&](Client&) { control(EPOLL_CTL_ADD, fd, EPOLLIN); });
    }
    const itimerspec timer = at(acceptor_.next_deadline());  // also makes an expired timer unreadable
    if (timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &timer, nullptr) != 0) {
      throw Internal("timerfd_settime in the job's store");
    }
  }

  // A failure with one client affects that client only.
  template <typename Action>
  void serve(int fd, Action action) {
    Client& client = clients_.at(fd);
    try {
      action(client);
      return;
    } catch (const ClientGone&) {
    } catch (...) {
      log_.warning("the store drops rank " + std::to_string(client.rank) + ": " + current_exception_status().message());
    }
    asking_ = -1;
    source_.forget(client.request_id);
    clients_.erase(fd);
  }

  void converse(Client& client) {
    if (client.store_lost) throw ClientGone{};
    flush(client);
    if (!client.unsent.empty()) return;
    const auto count = client.socket.receive_some(piece_);
    if (!count) throw ClientGone{};
    client.reader.feed(std::span(piece_).first(*count));
    while (client.unsent.empty()) {
      const auto message = client.reader.next();
      if (!message) return;
      ask(client, parse_store_request(*message));
    }
  }

  void ask(Client& client, StoreRequest request) {
    if (client.request_id != 0 && !client.waits_for_get) throw Internal("it asks on while its request is under way");
    source_.forget(client.request_id);
    client.request_id = 0;
    client.waits_for_get = request.operation == StoreOperation::get;
    const int fd = client.socket.fd();
    asking_ = fd;
    const auto answer = [this, fd, id = request.id](StatusCode code, std::string_view text) {
      answered(clients_.at(fd), id, code, text);
    };
    client.request_id = source_.ask(std::move(request), answer);
    asking_ = -1;
    if (client.store_lost) throw ClientGone{};
    flush(client);
  }

  // Called by the source, at any time. The answer is sent at once only to the client whose request is being
  // handled: failures of another one are handled in its own event, which comes as soon as there is room.
  void answered(Client& client, std::uint32_t id, StatusCode code, std::string_view text) {
    client.request_id = 0;
    client.store_lost = code == StatusCode::peer_lost;
    client.unsent = make_frame(encode_store_answer(id, code, text));
    client.sent = 0;
    if (client.socket.fd() != asking_) watch(client);
  }

  // Sends what fits, and watches for room if that is not all.
  void flush(Client& client) {
    if (!client.unsent.empty()) {
      const auto count = client.socket.send_some(std::span<const std::byte>(client.unsent).subspan(client.sent));
      if (!count) throw ClientGone{};
      client.sent += *count;
      if (client.sent == client.unsent.size()) client.unsent.clear();
    }
    watch(client);
  }

  void watch(Client& client) {
    const bool blocked = !client.unsent.empty();
    if (blocked == client.watched_for_writing) return;
    control(EPOLL_CTL_MOD, client.socket.fd(), blocked ? EPOLLOUT : EPOLLIN);
    client.watched_for_writing = blocked;
  }

  StoreSource& source_;
  const Log& log_;
  Acceptor acceptor_;
  FileDescriptor epoll_;
  FileDescriptor timer_;                     // of the acceptor's deadline
  std::unordered_map<int, Client> clients_;  // by descriptor
  int asking_ = -1;                          // the client for which StoreSource::ask() is running
  std::array<std::byte, kReadBytesPerClient> piece_;
};

StoreServer::StoreServer(const JobKey& key, const std::string& bind_host, StoreSource& source, const Log& log,
                         std::uint16_t port)
    : state_(std::make_unique<State>(key, bind_host, source, log, port)) {}

StoreServer::~StoreServer() = default;

const Address& StoreServer::address() const { return state_->address(); }

int StoreServer::fd() const { return state_->fd(); }

void StoreServer::serve_now() { state_->serve_now(); }

StoreServerThread::StoreServerThread(const JobKey& key, const std::string& bind_host, const Log& log,
                                     std::uint16_t port)
    : log_(log),
      server_(std::make_unique<StoreServer>(key, bind_host, origin_, log, port)),
      address_(server_->address()),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_event_) throw Internal("cannot open the store's event descriptors");
  thread_ = start_thread("hvd-store", [this] { run(); });
}

StoreServerThread::~StoreServerThread() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(stop_event_.get(), &one, sizeof one);
  thread_.join();
}

void StoreServerThread::run() {
  pollfd ready[] = {{.fd = stop_event_.get(), .events = POLLIN, .revents = 0},
                    {.fd = server_->fd(), .events = POLLIN, .revents = 0}};
  try {
    for (;;) {
      if (poll(ready, std::size(ready), -1) < 0 && errno != EINTR) throw Internal("poll in the job's store");
      if (ready[0].revents != 0) return;
      server_->serve_now();
    }
  } catch (...) {
    log_.error("the job's store stops: " + current_exception_status().message());
    server_.reset();
  }
}

}  // namespace hvd
