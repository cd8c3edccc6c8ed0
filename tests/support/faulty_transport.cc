#include "tests/support/faulty_transport.h"

#include <utility>

#include "core/base/error.h"

namespace hvd::testing {

void lose_peer() { throw PeerLost("injected: lost the connection"); }

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, Fault fault)
    : inner_(std::move(inner)), fault_(std::move(fault)) {}

Transport::RequestId FaultyTransport::post_send(int peer, Tag tag, std::span<const std::byte> bytes) {
  count(Fault::At::post_send);
  return inner_->post_send(peer, tag, bytes);
}

Transport::RequestId FaultyTransport::post_receive(int peer, Tag tag, std::span<std::byte> bytes) {
  count(Fault::At::post_receive);
  return inner_->post_receive(peer, tag, bytes);
}

void FaultyTransport::wait(RequestId request, Deadline deadline) {
  count(Fault::At::wait);
  inner_->wait(request, deadline);
}

bool FaultyTransport::wait_until(RequestId request, TimePoint until) {
  count(Fault::At::wait);
  return inner_->wait_until(request, until);
}

void FaultyTransport::count(Fault::At at) {
  if (at != fault_.at || calls_++ != fault_.call) return;
  try {
    fault_.action();
  } catch (...) {
    fail_inner();
    throw;
  }
}

void FaultyTransport::fail_inner() {
  if (size() == 1) return;
  const Tag never_sent{.process_set = 0xffffffff, .step = 0xffffffff, .sequence = 0};
  try {
    inner_->wait(inner_->post_receive(rank() == 0 ? 1 : 0, never_sent, {}), Clock::now());
  } catch (const Error&) {
    // As intended: the deadline has passed.
  }
}

}  // namespace hvd::testing
