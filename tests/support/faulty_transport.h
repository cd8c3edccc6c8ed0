// A transport that fails at a named step: it wraps another one, passes calls through and counts them.
//
// When the fault throws, the wrapped transport is made to fail too, so that it releases all posted memory as a
// transport does that found the fault itself.
#pragma once

#include <functional>
#include <memory>

#include "ops/transport/transport.h"

namespace hvd::testing {

struct Fault {
  enum class At { post_send, post_receive, wait };  // the last: of either kind

  At at = At::wait;
  int call = 0;  // the how manieth of these calls, from 0
  // What happens before the call is passed on. To throw ends it; to raise an abort flag or to take time does not.
  std::function<void()> action;
};

// An action: the peer is gone.
void lose_peer();

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, Fault fault);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override;
  RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override;
  void wait(RequestId request, Deadline deadline) override;
  bool wait_until(RequestId request, TimePoint until) override;

 private:
  void count(Fault::At at);
  void fail_inner();

  const std::unique_ptr<Transport> inner_;
  const Fault fault_;
  int calls_ = 0;  // of the kind that the fault is about
};

}  // namespace hvd::testing
