// Implements Link with a stream of gRPC.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/net/socket.h"
#include "launcher/processes/event_loop.h"
#include "launcher/remote/link.h"

namespace hvd::launcher {

// A queue to the event loop's thread: others put() items, the descriptor becomes readable, and the loop take()s them.
template <typename Item>
class Inbox {
 public:
  Inbox() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_) throw Internal("eventfd: " + error_text(errno));
  }

  // Readable while there are items to take; the loop watches it.
  int fd() const { return fd_.get(); }

  // Any thread.
  void put(Item item) {
    {
      const MutexLock lock(mutex_);
      items_.push_back(std::move(item));
      if (items_.size() > 1) return;  // the loop has been woken for the first
    }
    eventfd_write(fd_.get(), 1);
  }

  // Returns all items, in order. The loop's thread.
  std::vector<Item> take() {
    eventfd_t count = 0;
    eventfd_read(fd_.get(), &count);
    const MutexLock lock(mutex_);
    return std::exchange(items_, {});
  }

 private:
  const FileDescriptor fd_;
  Mutex mutex_;
  std::vector<Item> items_ GUARDED_BY(mutex_);
};

// One end of the stream between an agent and its parent. It is shared by a link, on the event loop's thread, and gRPC's
// reactor, on gRPC's threads. `Reactor` is grpc::ClientBidiReactor or grpc::ServerBidiReactor.
//
// The stream holds a reference to itself until gRPC is done with it; its link holds another, and may be destroyed
// first. gRPC calls OnDone() when no operation is pending and conclude() has been called. conclude() is called once:
// when nothing more can be read or the link is gone, and no thread is about to start or cancel an operation.
template <typename Reactor, typename OutgoingMessage, typename IncomingMessage>
class RpcStream : public Reactor {
 public:
  using Outgoing = OutgoingMessage;
  using Incoming = IncomingMessage;
  struct Ended {
    std::string cause;
  };

  // The messages received, and last of all the end of the stream.
  Inbox<std::variant<Incoming, Ended>>& inbox() { return inbox_; }
  // In gRPC's format.
  virtual std::string peer() const = 0;

  void send(Outgoing message) {
    {
      const MutexLock lock(mutex_);
      if (read_all_ || closed_) return;
      unsent_.push_back(std::move(message));
      if (unsent_.size() > 1) return;
      ++busy_;
    }
    write_first();
  }

  bool all_sent() const {
    const MutexLock lock(mutex_);
    return unsent_.empty();
  }

  // The link is destroyed: if all messages are sent, the other end still receives them; else cancels the stream.
  void close() {
    bool all_sent = false;
    {
      const MutexLock lock(mutex_);
      closed_ = true;
      if (concluded_) return;
      all_sent = unsent_.empty();
      ++busy_;
    }
    if (!all_sent) cancel();
    release();
  }

 protected:
  // Ends the stream at once, in both directions. Called while busy_ > 0.
  virtual void cancel() = 0;
  // No further message will be sent.
  virtual void conclude() = 0;

  // Called before the stream is passed to gRPC.
  void keep(std::shared_ptr<RpcStream> self) {
    self_ = std::move(self);
    this->StartRead(&incoming_);
  }

  // Called last by OnDone(). The stream may be destroyed afterwards.
  void end(std::string cause) {
    const std::shared_ptr<RpcStream> self = std::move(self_);
    put(Ended{std::move(cause)});
  }

 private:
  // NOLINTBEGIN(readability-identifier-naming): gRPC's names
  void OnReadDone(bool ok) final {
    if (ok) {
      put(std::move(incoming_));
      incoming_.Clear();
      this->StartRead(&incoming_);
      return;
    }
    {
      const MutexLock lock(mutex_);
      read_all_ = true;
      ++busy_;
    }
    release();
  }

  void OnWriteDone(bool ok) final {
    bool more = false;
    {
      const MutexLock lock(mutex_);
      if (ok) {
        unsent_.pop_front();
      } else {
        unsent_.clear();
      }
      more = !unsent_.empty();
    }
    if (more) return write_first();
    if (!ok) cancel();
    release();
  }
  // NOLINTEND(readability-identifier-naming)

  // Without the lock: nobody removes the first message while it is being written. Write-through: completes only when
  // the message is on the wire; it might else be dropped if the stream ends next.
  void write_first() NO_THREAD_SAFETY_ANALYSIS {
    this->StartWrite(&unsent_.front(), grpc::WriteOptions().set_write_through());
  }

  void release() {
    {
      const MutexLock lock(mutex_);
      --busy_;
      if (busy_ > 0 || concluded_ || !(read_all_ || closed_)) return;
      concluded_ = true;
    }
    conclude();
  }

  template <typename Item>
  void put(Item item) {
    {
      const MutexLock lock(mutex_);
      if (closed_) return;
    }
    inbox_.put(std::move(item));
  }

  Inbox<std::variant<Incoming, Ended>> inbox_;
  std::shared_ptr<RpcStream> self_;
  Incoming incoming_;  // being read

  mutable Mutex mutex_;
  std::deque<Outgoing> unsent_ GUARDED_BY(mutex_);  // the first is being written
  int busy_ GUARDED_BY(mutex_) = 0;                 // operations that delay conclude(): a write, a cancellation
  bool read_all_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;  // the link is destroyed
  bool concluded_ GUARDED_BY(mutex_) = false;
};

// Converts gRPC's name of a peer, "ipv6:%5B::1%5D:41822", to the usual form, "[::1]:41822" or "10.9.0.2:41822". Pure.
inline std::string peer_name(std::string_view of_grpc) {
  std::string name(of_grpc.substr(of_grpc.starts_with("ipv") ? of_grpc.find(':') + 1 : 0));
  for (const auto& [code, bracket] : {std::pair{"%5B", '['}, {"%5D", ']'}}) {
    if (const std::size_t at = name.find(code); at != std::string::npos) name.replace(at, 3, 1, bracket);
  }
  return name;
}

// Implements Link with an RpcStream, on the event loop's thread.
template <typename Rpc>
class StreamLink : public Link<typename Rpc::Outgoing, typename Rpc::Incoming> {
 public:
  using Outgoing = typename Rpc::Outgoing;
  using Incoming = typename Rpc::Incoming;
  using Listener = typename Link<Outgoing, Incoming>::Listener;

  StreamLink(EventLoop& loop, std::shared_ptr<Rpc> stream)
      : loop_(loop), stream_(std::move(stream)), peer_(peer_name(stream_->peer())) {}
  ~StreamLink() override {
    loop_.forget(stream_->inbox().fd());
    stream_->close();
  }
  StreamLink(const StreamLink&) = delete;
  StreamLink& operator=(const StreamLink&) = delete;

  void listen(Listener listener) override {
    listener_ = std::make_shared<const Listener>(std::move(listener));
    loop_.watch(stream_->inbox().fd(), EPOLLIN, [this] { deliver(); });
  }
  void send(Outgoing message) override { stream_->send(std::move(message)); }
  bool all_sent() const override { return stream_->all_sent(); }
  std::string peer() const override { return peer_; }

 private:
  // If a callback destroys the link, and listener_ with it, nothing more is delivered.
  void deliver() {
    const std::shared_ptr<const Listener> listener = listener_;
    const std::weak_ptr<const Listener> still_there = listener_;
    for (const auto& item : stream_->inbox().take()) {
      if (listener.use_count() == 1) return;
      if (const Incoming* message = std::get_if<Incoming>(&item)) {
        listener->received(*message);
      } else {
        listener->lost(std::get<typename Rpc::Ended>(item).cause);
      }
    }
  }

  EventLoop& loop_;
  const std::shared_ptr<Rpc> stream_;
  const std::string peer_;
  std::shared_ptr<const Listener> listener_;
};

}  // namespace hvd::launcher
