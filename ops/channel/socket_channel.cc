#include "ops/channel/socket_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"

namespace hvd {

SocketChannel::SocketChannel(const BackendContext& context)
    : parts_{.topology = context.topology,
             .store = context.store,
             .job_key = context.job_key,
             .config = context.config,
             .log = context.log,
             .local_host = context.local_host_address} {}

SocketChannel::~SocketChannel() { close(); }

void SocketChannel::send(const Message& message, EngineReference operation) {
  hand_over(true, message, std::move(operation));
}

void SocketChannel::receive(const Message& message, EngineReference operation) {
  hand_over(false, message, std::move(operation));
}

void SocketChannel::hand_over(bool is_send, const Message& message, EngineReference operation) {
  Transfer transfer{.message = message, .operation = std::move(operation), .since = Clock::now()};
  std::unique_lock lock(mutex_);
  if (closed_) {
    lock.unlock();
    return complete(transfer, Status(StatusCode::shut_down, "this rank has shut hvd down"));
  }
  if (!thread_.joinable()) {
    bell_ = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!bell_) throw Internal("eventfd: " + error_text(errno));
    thread_ = start_thread("hvd-channel", [this] { run_thread(); });
  }
  const bool first = orders_.transfers.empty();
  orders_.transfers.push_back({is_send, std::move(transfer)});
  lock.unlock();
  if (first) ring();
}

void SocketChannel::end(const Status& reason) {
  const std::lock_guard lock(mutex_);
  if (!orders_.end.ok()) return;
  orders_.end = reason;
  if (thread_.joinable()) ring();
}

void SocketChannel::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    orders_.close = true;
    if (!thread_.joinable()) return;
    ring();
  }
  thread_.join();
}

void SocketChannel::ring() const {
  const std::uint64_t one = 1;
  (void)!write(bell_.get(), &one, sizeof one);
}

SocketChannel::Orders SocketChannel::take_orders() {
  const std::lock_guard lock(mutex_);
  Orders taken{.transfers = std::exchange(orders_.transfers, {}), .end = orders_.end, .close = orders_.close};
  return taken;
}

void SocketChannel::run_thread() {
  Exchange exchange(parts_, bell_.get());
  for (;;) {
    Orders orders = take_orders();
    for (auto& [is_send, transfer] : orders.transfers) {
      is_send ? exchange.send(std::move(transfer)) : exchange.receive(std::move(transfer));
    }
    if (!orders.end.ok()) exchange.end(orders.end);
    if (orders.close) return exchange.close();
    exchange.turn();
  }
}

}  // namespace hvd
