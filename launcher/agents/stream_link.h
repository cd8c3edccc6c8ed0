// A Link that is an RpcStream, seen from the event loop.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "launcher/agents/link.h"
#include "launcher/agents/peer_name.h"
#include "launcher/event_loop.h"

namespace hvd::launcher {

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
  // A listener that destroys the link takes listener_ with it, and nothing more is delivered.
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
