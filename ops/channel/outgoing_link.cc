#include "ops/channel/outgoing_link.h"

#include <bit>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

using Kind = MessageFrame::Kind;

// Room for answers that are read at once.
constexpr std::size_t kAnswerBytes = 64 * kMessageFrameBytes;

}  // namespace

void OutgoingLink::open(Socket socket, const MessageFrame& hello) {
  connection_ = std::make_unique<Connection>(std::move(socket), kAnswerBytes);
  connection_->push(hello);
}

void OutgoingLink::transmit(Transfer message) {
  const Message& what = message.message;
  MessageFrame frame{.kind = Kind::message, .channel = what.channel, .tag = what.tag, .length = what.memory.size()};
  const std::uint64_t cost = cost_of(frame.length);
  if (frame.length <= kEagerBytes && cost <= credit_) {
    credit_ -= cost;
    return connection_->push(frame, std::move(message));
  }
  frame.kind = Kind::offer;
  frame.id = next_offer_++;
  frame.address = std::bit_cast<std::uintptr_t>(what.memory.data());
  connection_->push(frame);
  offers_.emplace(frame.id, std::move(message));
}

bool OutgoingLink::flush() {
  while (!waiting_.empty() && offers_.size() < kMaxOffers) {
    Transfer next = std::move(waiting_.front());
    waiting_.pop_front();
    transmit(std::move(next));
  }
  return connection_->flush();
}

Transfer OutgoingLink::take_offer(std::uint64_t id) {
  const auto found = offers_.find(id);
  if (found == offers_.end()) throw Internal(peer_ + " answers a message that it was not offered");
  Transfer offered = std::move(found->second);
  offers_.erase(found);
  return offered;
}

void OutgoingLink::hear(const MessageFrame& frame) {
  if (frame.kind == Kind::credit) {
    credit_ += frame.length;
    if (credit_ > kMessageCredit) throw Internal(peer_ + " gives back more credit for messages than it was sent");
    return;
  }
  Transfer offered = take_offer(frame.id);
  const std::uint64_t length = offered.message.memory.size();
  if (frame.kind == Kind::fetch) {
    connection_->push({.kind = Kind::data, .id = frame.id, .length = length}, std::move(offered));
  } else if (frame.kind == Kind::taken) {
    complete(offered, Status());
  } else {
    complete(offered, Status(StatusCode::mismatch, "a message of " + std::to_string(length) + " bytes of tag " +
                                                       std::to_string(offered.message.tag) + " was sent to " + peer_ +
                                                       ", which receives it into " + std::to_string(frame.length) +
                                                       " bytes: both sides must have the same size"));
  }
}

bool OutgoingLink::advance() {
  for (;;) {
    const auto count = connection_->fill();
    if (!count) return false;
    while (connection_->input().size() >= kMessageFrameBytes) {
      const MessageFrame frame =
          parse_message_frame(connection_->input().first<kMessageFrameBytes>(), Direction::to_sender);
      connection_->consume(kMessageFrameBytes);
      hear(frame);
    }
    if (*count == 0) return true;
  }
}

void OutgoingLink::for_each_waiting(const std::function<void(Transfer&)>& visit) {
  for (Transfer& message : waiting_) visit(message);
  for (auto& [id, message] : offers_) visit(message);
}

std::vector<Transfer> OutgoingLink::give_up_unsent() {
  std::vector<Transfer> unsent;
  for (auto& [id, message] : std::exchange(offers_, {})) unsent.push_back(std::move(message));
  for (Transfer& message : std::exchange(waiting_, {})) unsent.push_back(std::move(message));
  return unsent;
}

std::vector<Transfer> OutgoingLink::give_up() {
  std::vector<Transfer> all = give_up_unsent();
  if (!connection_) return all;
  for (Transfer& message : connection_->give_up_output()) all.push_back(std::move(message));
  connection_.reset();
  return all;
}

}  // namespace hvd
