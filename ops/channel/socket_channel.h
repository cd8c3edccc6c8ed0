// The channel over sockets: callers put their transfers into a list, and a thread, "hvd-channel", performs them
// (exchange.h). The thread is started with the first message, and sleeps while no transfer is pending.
//
// No lock is held while messages are transferred; callers and thread share only the list.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/net/socket.h"
#include "ops/channel/exchange.h"

namespace hvd {

class SocketChannel final : public Channel {
 public:
  // The context's references, including the store, outlive the channel.
  explicit SocketChannel(const BackendContext& context);
  ~SocketChannel() override;
  SocketChannel(const SocketChannel&) = delete;
  SocketChannel& operator=(const SocketChannel&) = delete;

  void send(const Message& message, EngineReference operation) override;
  void receive(const Message& message, EngineReference operation) override;
  void end(const Status& reason) override;
  void close() override;

 private:
  // Requests to the thread, performed in this order.
  struct Orders {
    struct Order {
      bool is_send;
      Transfer transfer;
    };
    std::vector<Order> transfers;
    Status end;
    bool close = false;
  };

  void hand_over(bool is_send, const Message& message, EngineReference operation);
  void ring() const;
  void run_thread();
  Orders take_orders();

  const Exchange::Parts parts_;
  FileDescriptor bell_;
  std::mutex mutex_;
  Orders orders_;        // guarded by mutex_
  bool closed_ = false;  // guarded by mutex_
  std::thread thread_;   // started once, under mutex_
};

}  // namespace hvd
