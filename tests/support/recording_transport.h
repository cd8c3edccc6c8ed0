// A transport that records what its rank sends: it wraps another one and passes calls through.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ops/transport/transport.h"

namespace hvd::testing {

struct SentMessage {
  int peer;
  std::size_t bytes;
  bool operator==(const SentMessage&) const = default;
};

class RecordingTransport final : public Transport {
 public:
  // `sent` outlives the transport.
  RecordingTransport(std::unique_ptr<Transport> inner, std::vector<SentMessage>& sent)
      : inner_(std::move(inner)), sent_(sent) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    sent_.push_back({peer, bytes.size()});
    return inner_->post_send(peer, tag, bytes);
  }
  RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override {
    return inner_->post_receive(peer, tag, bytes);
  }
  void wait(RequestId call_id, Deadline deadline) override { inner_->wait(call_id, deadline); }
  bool wait_until(RequestId call_id, TimePoint until) override { return inner_->wait_until(call_id, until); }

 private:
  const std::unique_ptr<Transport> inner_;
  std::vector<SentMessage>& sent_;
};

}  // namespace hvd::testing
