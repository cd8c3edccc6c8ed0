#include "tests/support/simulated_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hvd::testing {

SimulatedTransport::SimulatedTransport(std::unique_ptr<Transport> inner, LinkSpeed speed)
    : inner_(std::move(inner)), speed_(speed) {}

Transport::RequestId SimulatedTransport::post_send(int peer, Tag tag, std::span<const std::byte> bytes) {
  now_ += speed_.per_message;
  link_free_ =
      std::max(link_free_, now_ - on_the_link(speed_.burst_bytes)) + on_the_link(static_cast<double>(bytes.size()));
  const TimePoint departure = std::max(now_, link_free_), arrival = departure + speed_.latency;
  std::vector<std::byte> message(sizeof arrival + bytes.size());
  std::memcpy(message.data(), &arrival, sizeof arrival);
  std::copy(bytes.begin(), bytes.end(), message.begin() + sizeof arrival);
  const RequestId call_id = inner_->post_send(peer, tag, message);
  operations_.emplace(call_id, PostedMessage{.message = std::move(message), .target = {}, .departure = departure});
  return call_id;
}

Duration SimulatedTransport::on_the_link(double bytes) const {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(speed_.seconds_per_byte * bytes));
}

Transport::RequestId SimulatedTransport::post_receive(int peer, Tag tag, std::span<std::byte> bytes) {
  std::vector<std::byte> message(sizeof(TimePoint) + bytes.size());
  const RequestId call_id = inner_->post_receive(peer, tag, message);
  operations_.emplace(call_id, PostedMessage{.message = std::move(message), .target = bytes, .departure = {}});
  return call_id;
}

void SimulatedTransport::wait(RequestId call_id, Deadline deadline) {
  inner_->wait(call_id, deadline);
  complete(call_id);
}

// In real time, as deadlines are.
bool SimulatedTransport::wait_until(RequestId call_id, TimePoint until) {
  if (!inner_->wait_until(call_id, until)) return false;
  complete(call_id);
  return true;
}

void SimulatedTransport::complete(RequestId call_id) {
  const PostedMessage operation = operations_.extract(call_id).mapped();
  TimePoint done = operation.departure;
  if (done == TimePoint{}) {
    std::memcpy(&done, operation.message.data(), sizeof done);
    std::copy(operation.message.begin() + sizeof done, operation.message.end(), operation.target.begin());
  }
  now_ = std::max(now_, done);
}

}  // namespace hvd::testing
