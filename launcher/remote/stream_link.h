// Implements Link with an RpcStream, on the event loop's thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "launcher/loop/event_loop.h"
#include "launcher/remote/link.h"

namespace hvd::launcher {

// Converts gRPC's name of a peer, "ipv6:%5B::1%5D:41822", to the usual form, "[::1]:41822" or "10.9.0.2:41822". Pure.
inline std::string peer_name(std::string_view of_grpc) {
  std::string name(of_grpc.substr(of_grpc.starts_with("ipv") ? of_grpc.find(':') + 1 : 0));
  for (const auto& [code, bracket] : {std::pair{"%5B", '['}, {"%5D", ']'}}) {
    if (const std::size_t at = name.find(code); at != std::string::npos) name.replace(at, 3, 1, bracket);
  }
  return name;
}

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
