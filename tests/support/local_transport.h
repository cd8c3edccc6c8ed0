// A transport between ranks that are threads of one process: for tests, and the shortest complete implementation of
// transport.h.
//
// Each ordered pair of ranks has a channel with two queues, posted sends and posted receives. The thread that completes
// a pair of heads copies the bytes, under the channel's lock. The LocalNetwork outlives its transports; a transport is
// used by its rank's thread only.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/abort_flag.h"
#include "ops/transport/transport.h"

namespace hvd {

class LocalNetwork {
 public:
  explicit LocalNetwork(int size);

  int size() const { return size_; }

 private:
  friend class LocalTransport;

  // Messages from one rank to another. All members are guarded by the mutex.
  struct Channel {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<PostedMessage*> sends;
    std::deque<PostedMessage*> receives;
    bool sender_gone = false;
    bool receiver_gone = false;

    // Delivers messages while the heads of both queues match. Heads that differ stay, so that the receiver finds them.
    void match();
  };

  Channel& channel(int from, int to) {
    return *channels_[static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(to)];
  }

  const int size_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

class LocalTransport final : public Transport {
 public:
  // `abort` is polled by waits and outlives the transport.
  LocalTransport(LocalNetwork& network, int rank, const AbortFlag& abort);
  ~LocalTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return network_.size(); }

  RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override;
  RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override;
  void wait(RequestId request, Deadline deadline) override;
  bool wait_until(RequestId request, TimePoint until) override;

 private:
  RequestId post(PostedMessage operation);
  LocalNetwork::Channel& channel_of(const PostedMessage& operation);
  // Returns whether the operation is complete; false only after `until`.
  bool await_completion(const PostedMessage& operation, TimePoint until);
  // Handles a failed call, as TcpTransport does.
  [[noreturn]] void fail();
  void flush_sends();
  // Withdraws all posted operations: no peer accesses this rank's memory afterwards.
  void leave();

  LocalNetwork& network_;
  const int rank_;
  const AbortFlag& abort_;
  OperationWindow operations_;
  bool left_ = false;
};

}  // namespace hvd
