#include "ops/channel/links.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

using Kind = MessageFrame::Kind;

// Room for answers that are read at once.
constexpr std::size_t kAnswerBytes = 64 * kMessageFrameBytes;
// Room for the largest eager message.
constexpr std::size_t kInputBytes = 2 * (kMessageFrameBytes + kEagerBytes);
// Credit is returned in portions of this size: the sender still has three quarters of it.
constexpr std::uint64_t kCreditPortion = kMessageCredit / 4;
// Limit of consecutive reads, so that other ranks get their turn.
constexpr int kReads = 32;

Status wrong_size(std::uint64_t sent, const Transfer& receive, const std::string& who) {
  return {StatusCode::mismatch, "a message of " + std::to_string(sent) + " bytes of tag " +
                                    std::to_string(receive.message.tag) + " from " + who + " was received into " +
                                    std::to_string(receive.message.memory.size()) +
                                    " bytes: both sides must have the same size"};
}

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

void deliver(Transfer receive, std::span<const std::byte> content, int source, const std::string& who) {
  if (content.size() != receive.message.memory.size()) {
    return complete(receive, wrong_size(content.size(), receive, who), source);
  }
  if (!content.empty()) std::memcpy(receive.message.memory.data(), content.data(), content.size());
  complete(receive, Status(), source);
}

IncomingLink::IncomingLink(Sender sender, Socket socket, Matcher& matcher)
    : sender_(std::move(sender)),
      connection_(std::move(socket), kInputBytes),
      matcher_(matcher),
      arriving_(fetching_.end()) {}

bool IncomingLink::advance() {
  for (int i = 0; i < kReads; ++i) {
    const bool into_place = arriving_ != fetching_.end();
    const auto count =
        into_place ? connection_.read_into(arriving_->second.message.memory.subspan(arrived_)) : connection_.fill();
    if (!count) return false;
    if (*count == 0) return true;
    if (into_place) take_data(*count);
    // Processes the whole buffer: no later event reports its rest.
    while (hear_input()) {
    }
  }
  return true;
}

// Processes the next complete frame; returns false if there is none.
bool IncomingLink::hear_input() {
  const auto input = connection_.input();
  if (arriving_ != fetching_.end()) {
    if (input.empty()) return false;
    const auto rest = arriving_->second.message.memory.subspan(arrived_);
    const std::size_t count = std::min(rest.size(), input.size());
    std::memcpy(rest.data(), input.data(), count);
    connection_.consume(count);
    take_data(count);
    return true;
  }
  if (input.size() < kMessageFrameBytes) return false;
  const MessageFrame frame = parse_message_frame(input.first<kMessageFrameBytes>(), Direction::to_receiver);
  if (greeted_ == (frame.kind == Kind::hello))
    throw Internal("malformed message: a greeting must come first, and once");
  const std::size_t whole = kMessageFrameBytes + (frame.kind == Kind::message ? frame.length : 0);
  if (input.size() < whole) return false;
  connection_.consume(whole);
  switch (frame.kind) {
    case Kind::hello: greet(frame); break;
    case Kind::message: take_message(frame, input.subspan(kMessageFrameBytes, frame.length)); break;
    case Kind::offer: take_offer(frame); break;
    default: begin_data(frame);
  }
  return true;
}

void IncomingLink::greet(const MessageFrame& hello) {
  greeted_ = true;
  const std::array introduction{PeerMemory::Introduction{
      .process = static_cast<pid_t>(hello.id), .address = hello.address, .word = hello.length}};
  memory_is_readable_ = sender_.same_host && memory_.meet(introduction);
}

void IncomingLink::take_message(const MessageFrame& frame, std::span<const std::byte> payload) {
  if (auto receive = matcher_.take_receive(sender_.rank, frame.channel, frame.tag)) {
    hvd::deliver(std::move(*receive), payload, sender_.rank, sender_.description);
    return give_back(frame.length);
  }
  kept_ += cost_of(frame.length);
  if (kept_ > kMessageCredit) throw Internal("malformed message: more of them than this rank has taken");
  matcher_.keep({.source = sender_.rank,
                 .channel = frame.channel,
                 .tag = frame.tag,
                 .length = frame.length,
                 .content = {payload.begin(), payload.end()}});
}

void IncomingLink::take_offer(const MessageFrame& frame) {
  if (++open_offers_ > kMaxOffers) throw Internal("malformed message: more offers than a rank may make");
  if (auto receive = matcher_.take_receive(sender_.rank, frame.channel, frame.tag)) {
    return accept(std::move(*receive), frame);
  }
  matcher_.keep({.source = sender_.rank,
                 .channel = frame.channel,
                 .tag = frame.tag,
                 .length = frame.length,
                 .offer = frame.id,
                 .address = frame.address,
                 .content = {}});
}

void IncomingLink::deliver(Transfer receive, const Arrival& arrival) {
  if (arrival.offer) {
    return accept(std::move(receive),
                  {.kind = Kind::offer, .id = *arrival.offer, .length = arrival.length, .address = arrival.address});
  }
  kept_ -= cost_of(arrival.length);
  hvd::deliver(std::move(receive), arrival.content, sender_.rank, sender_.description);
  give_back(arrival.length);
}

void IncomingLink::accept(Transfer receive, const MessageFrame& offer) {
  --open_offers_;
  const std::uint64_t room = receive.message.memory.size();
  if (offer.length != room) {
    connection_.push({.kind = Kind::refused, .id = offer.id, .length = room});
    complete(receive, wrong_size(offer.length, receive, sender_.description), sender_.rank);
  } else if (room == 0 || read_directly(receive, offer)) {
    connection_.push({.kind = Kind::taken, .id = offer.id});
    complete(receive, Status(), sender_.rank);
  } else {
    connection_.push({.kind = Kind::fetch, .id = offer.id});
    if (!fetching_.try_emplace(offer.id, std::move(receive)).second) {
      throw Internal("malformed message: two offers of one number");
    }
  }
}

bool IncomingLink::read_directly(Transfer& receive, const MessageFrame& offer) {
  if (!memory_is_readable_) return false;
  const auto room = receive.message.memory;
  try {
    memory_.read(0, offer.address, room.data(), room.size(), [this](int) { return sender_.description; });
  } catch (const Error&) {  // not all kinds of memory are readable; a lost rank is detected on the connection
    return false;
  }
  return true;
}

void IncomingLink::begin_data(const MessageFrame& frame) {
  const auto found = fetching_.find(frame.id);
  if (found == fetching_.end() || frame.length != found->second.message.memory.size()) {
    throw Internal("malformed message: data that nobody has asked for");
  }
  arriving_ = found;
  arrived_ = 0;
}

void IncomingLink::take_data(std::size_t bytes) {
  arrived_ += bytes;
  if (arrived_ < arriving_->second.message.memory.size()) return;
  complete(arriving_->second, Status(), sender_.rank);
  fetching_.erase(arriving_);
  arriving_ = fetching_.end();
}

void IncomingLink::give_back(std::uint64_t length) {
  owed_credit_ += cost_of(length);
  if (owed_credit_ < kCreditPortion) return;
  connection_.push({.kind = Kind::credit, .length = std::exchange(owed_credit_, 0)});
}

std::vector<Transfer> IncomingLink::give_up() {
  std::vector<Transfer> all;
  for (auto& [id, receive] : std::exchange(fetching_, {})) all.push_back(std::move(receive));
  arriving_ = fetching_.end();
  return all;
}

}  // namespace hvd
