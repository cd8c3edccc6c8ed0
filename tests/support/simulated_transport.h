// A transport over links of a given speed, in simulated time: it wraps another one, which brings the bytes, and keeps a
// clock of its own that only messages move.
//
// A rank's messages leave one after the other, `per_byte` for each byte, whoever they are for, and arrive `latency`
// after they have left; to send one takes the rank `per_message`. Every message carries in front of it when it arrives:
// the receiver's clock is that late at least when it has it. So times are exact, the same in every run, and cost none,
// as long as a rank waits for its messages in an order that does not depend on time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "ops/transport/transport.h"

namespace hvd::testing {

struct LinkSpeed {
  Duration latency{};
  double seconds_per_byte = 0;
  Duration per_message{};
  double burst_bytes = 0;  // that pass at once where nothing has passed for as long as they take
};

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(std::unique_ptr<Transport> inner, LinkSpeed speed);

  // The rank's clock; it begins at zero.
  TimePoint now() const { return now_; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override;
  RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override;
  void wait(RequestId call_id, Deadline deadline) override;
  bool wait_until(RequestId call_id, TimePoint until) override;

 private:
  struct PostedMessage {
    std::vector<std::byte> message;  // with the time in front
    std::span<std::byte> target;     // of a receive
    TimePoint departure;             // of a send
  };

  Duration on_the_link(double bytes) const;
  void complete(RequestId call_id);

  const std::unique_ptr<Transport> inner_;
  const LinkSpeed speed_;
  TimePoint now_{};
  TimePoint link_free_{};  // in the past by no more than a burst
  std::map<RequestId, PostedMessage> operations_;
};

}  // namespace hvd::testing
