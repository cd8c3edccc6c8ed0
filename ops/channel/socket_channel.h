// The channel over sockets: what callers want goes into a list, and a thread, "hvd-channel", does it (exchange.h). The
// thread is there from the first message on, and sleeps while nothing is under way.
//
// Locks nothing while it moves messages; callers and thread meet at the list only.
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
  // The context's references outlive the channel, the store included.
  explicit SocketChannel(const BackendContext& context);
  ~SocketChannel() override;
  SocketChannel(const SocketChannel&) = delete;
  SocketChannel& operator=(const SocketChannel&) = delete;

  void send(const Message& message, EnginesSubmission submission) override;
  void receive(const Message& message, EnginesSubmission submission) override;
  void end(const Status& reason) override;
  void close() override;

 private:
  // What the thread is to do, in this order.
  struct Orders {
    struct Order {
      bool is_send;
      Transfer transfer;
    };
    std::vector<Order> transfers;
    Status end;
    bool close = false;
  };

  void hand_over(bool is_send, const Message& message, EnginesSubmission submission);
  void ring() const;
  void run_thread();
  Orders take_orders();

  const Exchange::Parts parts_;
  FileDescriptor bell_;
  std::mutex mutex_;
  Orders orders_;        // guarded by mutex_
  bool closed_ = false;  // guarded by mutex_
  std::thread thread_;   // started once, with mutex_
};

}  // namespace hvd
