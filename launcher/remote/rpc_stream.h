// One end of the stream between an agent and its parent. It is shared by a link, on the event loop's thread, and gRPC's
// reactor, on gRPC's threads. `Reactor` is grpc::ClientBidiReactor or grpc::ServerBidiReactor.
//
// The stream holds a reference to itself until gRPC is done with it; its link holds another, and may be destroyed
// first. gRPC calls OnDone() when no operation is pending and conclude() has been called. conclude() is called once:
// when nothing more can be read or the link is gone, and no thread is about to start or cancel an operation.
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

  // The messages received, and last of all the end of the stream.
  Inbox<std::variant<Incoming, Ended>>& inbox() { return inbox_; }
  // In gRPC's format.
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

  // If false, the inbox wakes the loop once all messages are sent.
  bool all_sent() {
    const std::lock_guard lock(mutex_);
    awaited_ = !unsent_.empty();
    return !awaited_;
  }

  // Called when the link is destroyed. If all messages are sent, the other end still receives them; else the stream is
  // cancelled.
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

  // Write-through: completes only when the message is on the wire; it might else be dropped if the stream ends next.
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
  bool awaited_ = false;         // the loop must be woken when unsent_ is empty
  int busy_ = 0;                 // operations that delay conclude(): a write, a cancellation
  bool read_all_ = false;
  bool closed_ = false;  // the link is destroyed
  bool concluded_ = false;
};

}  // namespace hvd::launcher
