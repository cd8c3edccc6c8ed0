// What a link, on the event loop's thread, and gRPC's reactor, on gRPC's threads, have in common: one end of the stream
// between an agent and its parent. `Reactor` is grpc::ClientBidiReactor or grpc::ServerBidiReactor.
//
// A stream keeps itself until gRPC is done with it; its link keeps it too, and may go first. gRPC calls OnDone() when
// no operation is under way and conclude() has been called, which happens once: when nothing more can be read or the
// link has gone, and nobody is about to start or cancel something.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "launcher/remote/inbox.h"

namespace hvd::launcher {

template <typename Reactor, typename OutgoingMessage, typename IncomingMessage>
class RpcStream : public Reactor {
 public:
  using Outgoing = OutgoingMessage;
  using Incoming = IncomingMessage;
  struct Ended {
    std::string cause;
  };

  // The other end's messages, and last of all that the stream has ended.
  Inbox<std::variant<Incoming, Ended>>& inbox() { return inbox_; }
  // As gRPC writes it.
  virtual std::string peer() const = 0;

  void send(Outgoing message) {
    {
      const std::lock_guard lock(mutex_);
      if (read_all_ || closed_) return;
      unsent_.push_back(std::move(message));
      if (unsent_.size() > 1) return;
      ++busy_;
    }
    write_first();
  }

  // If not, the inbox wakes the loop when it is.
  bool all_sent() {
    const std::lock_guard lock(mutex_);
    awaited_ = !unsent_.empty();
    return !awaited_;
  }

  // The link goes. The other end still receives what has been sent, if that is everything.
  void close() {
    bool all_sent = false;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      if (concluded_) return;
      all_sent = unsent_.empty();
      ++busy_;
    }
    if (!all_sent) cancel();
    release();
  }

 protected:
  // Ends the stream at once, both ways. While the stream is busy.
  virtual void cancel() = 0;
  // Nothing is to be sent any more.
  virtual void conclude() = 0;

  // Before gRPC knows the stream.
  void keep(std::shared_ptr<RpcStream> self) {
    self_ = std::move(self);
    this->StartRead(&incoming_);
  }

  // By OnDone(), last. The stream may be gone afterwards.
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
      const std::lock_guard lock(mutex_);
      read_all_ = true;
      ++busy_;
    }
    release();
  }

  void OnWriteDone(bool ok) final {
    bool more = false, awaited = false;
    {
      const std::lock_guard lock(mutex_);
      if (ok) {
        unsent_.pop_front();
      } else {
        unsent_.clear();
      }
      more = !unsent_.empty();
      if (!more) awaited = std::exchange(awaited_, false);
    }
    if (more) return write_first();
    if (awaited) inbox_.wake();
    if (!ok) cancel();
    release();
  }
  // NOLINTEND(readability-identifier-naming)

  // Done only when the message is on its way: it might else be dropped if the stream is ended next.
  void write_first() { this->StartWrite(&unsent_.front(), grpc::WriteOptions().set_write_through()); }

  void release() {
    {
      const std::lock_guard lock(mutex_);
      --busy_;
      if (busy_ > 0 || concluded_ || !(read_all_ || closed_)) return;
      concluded_ = true;
    }
    conclude();
  }

  template <typename Item>
  void put(Item item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
    }
    inbox_.put(std::move(item));
  }

  Inbox<std::variant<Incoming, Ended>> inbox_;
  std::shared_ptr<RpcStream> self_;
  Incoming incoming_;  // being read

  mutable std::mutex mutex_;
  std::deque<Outgoing> unsent_;  // the first is being written
  bool awaited_ = false;         // that it is empty
  int busy_ = 0;                 // operations that keep the stream from being concluded: a write, a cancellation
  bool read_all_ = false;
  bool closed_ = false;  // there is no link any more
  bool concluded_ = false;
};

}  // namespace hvd::launcher
