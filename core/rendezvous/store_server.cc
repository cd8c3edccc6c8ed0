#include "core/rendezvous/store_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/net/frame.h"
#include "core/rendezvous/store_protocol.h"

namespace hvd {

namespace {

constexpr std::size_t kReceiveBytes = 64 * 1024;

struct Client {
  explicit Client(Peer peer) : socket(std::move(peer.socket)), rank(peer.rank), reader(kMaxStoreFrameBytes) {}

  Socket socket;
  int rank;
  FrameReader reader;
  // While an answer is not taken, nothing more is read: a client holds at most one frame in and one out.
  Bytes unsent;
  std::size_t sent = 0;
  bool waiting = false;  // a get is parked under `waiting_key`
  std::string waiting_key;
  std::uint32_t waiting_id = 0;
  bool watched_for_writing = false;
};

// Thrown when a client has closed its connection, as all do in the end.
struct Left {};

int timeout_ms(Deadline deadline) {
  if (deadline == Deadline::max()) return -1;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
}

}  // namespace

// All state but stop() belongs to the server's thread.
class StoreServer::Loop {
 public:
  Loop(const JobKey& key, const std::string& bind_host, const Log& log, std::uint16_t port)
      : log_(log),
        acceptor_(Listener::tcp(bind_host, port), key, Purpose::store, log),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!epoll_ || !stop_event_) throw Internal("cannot open the store's event descriptors");
    control(EPOLL_CTL_ADD, stop_event_.get(), EPOLLIN);
    for (const int fd : acceptor_.descriptors()) control(EPOLL_CTL_ADD, fd, EPOLLIN);
  }

  const Address& address() const { return acceptor_.address(); }

  void stop() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(stop_event_.get(), &one, sizeof one);
  }

  void run() {
    name_this_thread("hvd-store");
    try {
      while (serve_events()) {
      }
    } catch (...) {
      log_.error("the job's store stops: " + current_exception_status().message());
    }
    clients_.clear();
  }

 private:
  // False once stop() was called.
  bool serve_events() {
    std::array<epoll_event, 64> events;
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms(acceptor_.next_deadline()));
    if (count < 0 && errno != EINTR) throw Internal("epoll_wait in the job's store");
    bool somebody_new = count <= 0;  // then a deadline of the acceptor has passed
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == stop_event_.get()) return false;
      if (clients_.contains(fd)) {
        serve(fd, [this](Client& client) { converse(client); });
      } else {
        somebody_new = true;  // the acceptor, or without harm a client that left during this batch
      }
    }
    // After the batch, so that a new client cannot take over the number of one whose events are still listed.
    while (somebody_new) {
      auto peer = acceptor_.accept_now();
      if (!peer) break;
      welcome(std::move(*peer));
    }
    return true;
  }

  void control(int operation, int fd, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) throw Internal("epoll_ctl in the job's store");
  }

  void welcome(Peer peer) {
    const int fd = peer.socket.fd();
    clients_.try_emplace(fd, std::move(peer));
    serve(fd, [&](Client&) { control(EPOLL_CTL_ADD, fd, EPOLLIN); });
  }

  // Whatever goes wrong with one client ends with that client.
  template <typename Action>
  void serve(int fd, Action action) {
    Client& client = clients_.at(fd);
    try {
      action(client);
      return;
    } catch (const Left&) {
    } catch (...) {
      log_.warning("the store drops rank " + std::to_string(client.rank) + ": " + current_exception_status().message());
    }
    forget_waiting(client);
    clients_.erase(fd);
  }

  void converse(Client& client) {
    flush(client);
    if (!client.unsent.empty()) return;
    const auto count = client.socket.receive_some(piece_);
    if (!count) throw Left{};
    client.reader.feed(std::span(piece_).first(*count));
    answer_whole_requests(client);
  }

  void answer_whole_requests(Client& client) {
    while (client.unsent.empty()) {
      const auto message = client.reader.next();
      if (!message) return;
      obey(client, parse_store_request(*message));
    }
  }

  void obey(Client& client, StoreRequest request) {
    forget_waiting(client);
    try {
      switch (request.operation) {
        case StoreOperation::set: return set(client, std::move(request));
        case StoreOperation::get: return get(client, std::move(request));
        case StoreOperation::add:
          return answer(client, request.id, StatusCode::ok, std::to_string(table_.add(request.key, request.amount)));
      }
    } catch (const InvalidArgument& error) {
      answer(client, request.id, error.code(), error.what());
    }
  }

  void set(Client& client, StoreRequest request) {
    table_.set(request.key, std::move(request.value));
    answer(client, request.id, StatusCode::ok, "");
    const auto parked = waiting_.find(request.key);
    if (parked == waiting_.end()) return;
    const std::vector<int> woken = std::move(parked->second);
    waiting_.erase(parked);
    for (const int fd : woken) {
      serve(fd, [this](Client& waiter) {
        waiter.waiting = false;
        answer(waiter, waiter.waiting_id, StatusCode::ok, *table_.find(waiter.waiting_key));
      });
    }
  }

  void get(Client& client, StoreRequest request) {
    check_store_key(request.key);
    if (const std::string* value = table_.find(request.key)) {
      return answer(client, request.id, StatusCode::ok, *value);
    }
    waiting_[request.key].push_back(client.socket.fd());
    client.waiting = true;
    client.waiting_key = std::move(request.key);
    client.waiting_id = request.id;
  }

  void forget_waiting(Client& client) {
    if (!client.waiting) return;
    client.waiting = false;
    const auto parked = waiting_.find(client.waiting_key);
    if (parked == waiting_.end()) return;
    std::erase(parked->second, client.socket.fd());
    if (parked->second.empty()) waiting_.erase(parked);
  }

  void answer(Client& client, std::uint32_t id, StatusCode code, std::string_view text) {
    client.unsent = make_frame(encode_store_answer(id, code, text));
    client.sent = 0;
    flush(client);
  }

  // Sends what goes, and watches for room if that is not all.
  void flush(Client& client) {
    if (!client.unsent.empty()) {
      const auto count = client.socket.send_some(std::span<const std::byte>(client.unsent).subspan(client.sent));
      if (!count) throw Left{};
      client.sent += *count;
      if (client.sent == client.unsent.size()) client.unsent.clear();
    }
    const bool blocked = !client.unsent.empty();
    if (blocked == client.watched_for_writing) return;
    control(EPOLL_CTL_MOD, client.socket.fd(), blocked ? EPOLLOUT : EPOLLIN);
    client.watched_for_writing = blocked;
  }

  const Log& log_;
  Acceptor acceptor_;
  FileDescriptor epoll_;
  FileDescriptor stop_event_;
  StoreTable table_;
  std::unordered_map<int, Client> clients_;                    // by descriptor
  std::unordered_map<std::string, std::vector<int>> waiting_;  // key -> clients whose get is parked
  std::array<std::byte, kReceiveBytes> piece_;
};

StoreServer::StoreServer(const JobKey& key, const std::string& bind_host, const Log& log, std::uint16_t port)
    : loop_(std::make_unique<Loop>(key, bind_host, log, port)),
      address_(loop_->address()),
      thread_([this] { loop_->run(); }) {}

StoreServer::~StoreServer() {
  loop_->stop();
  thread_.join();
}

}  // namespace hvd
