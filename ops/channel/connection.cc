#include "ops/channel/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/net/endpoint.h"

namespace hvd {

namespace {

using Kind = MessageFrame::Kind;

// An upper bound for the size of memory.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

std::uint64_t longest(Kind kind) {
  switch (kind) {
    case Kind::hello: return UINT64_MAX;  // an arbitrary word
    case Kind::message: return kEagerBytes;
    case Kind::credit: return kMessageCredit;
    case Kind::offer:
    case Kind::data:
    case Kind::refused: return kMostBytes;
    case Kind::fetch:
    case Kind::taken: return 0;
  }
  return 0;
}

bool goes(Kind kind, Direction direction) {
  const bool to_receiver = kind >= Kind::hello && kind <= Kind::data;
  const bool to_sender = kind >= Kind::credit && kind <= Kind::refused;
  return direction == Direction::to_receiver ? to_receiver : to_sender;
}

constexpr std::size_t kBuffersPerCall = 64;

// Appends the part of `bytes` behind the first `skip`, and decrements `skip`.
void add_rest(std::span<const std::byte> bytes, std::size_t& skip, std::span<std::span<const std::byte>> buffers,
              std::size_t& count) {
  const std::size_t skipped = std::min(skip, bytes.size());
  skip -= skipped;
  if (skipped < bytes.size()) buffers[count++] = bytes.subspan(skipped);
}

}  // namespace

void Connection::push(const MessageFrame& frame) {
  output_.push_back({.header = to_bytes(frame), .payload = {}, .send = std::nullopt});
}

void Connection::push(const MessageFrame& frame, Transfer send) {
  const std::span<const std::byte> payload = send.message.memory;
  output_.push_back({.header = to_bytes(frame), .payload = payload, .send = std::move(send)});
}

bool Connection::flush() {
  while (!output_.empty()) {
    std::array<std::span<const std::byte>, kBuffersPerCall> buffers;
    std::size_t count = 0;
    std::size_t skip = front_sent_;
    for (const Outgoing& next : output_) {
      if (count + 2 > buffers.size()) break;
      add_rest(next.header, skip, buffers, count);
      add_rest(next.payload, skip, buffers, count);
    }
    const auto sent = socket_.send_some(std::span<const std::span<const std::byte>>(buffers.data(), count));
    if (!sent) return false;
    if (*sent == 0) return true;
    front_sent_ += *sent;
    while (!output_.empty() && front_sent_ >= output_.front().size()) {
      front_sent_ -= output_.front().size();
      if (output_.front().send) complete(*output_.front().send, Status());
      output_.pop_front();
    }
  }
  return true;
}

void Connection::finish_output() { shutdown(fd(), SHUT_WR); }

std::vector<Transfer> Connection::give_up_output() {
  std::vector<Transfer> sends;
  for (Outgoing& next : output_) {
    if (next.send) sends.push_back(std::move(*next.send));
  }
  output_.clear();
  front_sent_ = 0;
  return sends;
}

std::optional<std::size_t> Connection::fill() {
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const auto count = socket_.receive_some(std::span(buffer_).subspan(end_));
  end_ += count.value_or(0);
  return count;
}

MessageFrame parse_message_frame(std::span<const std::byte, kMessageFrameBytes> bytes, Direction direction) {
  MessageFrame frame;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.magic != MessageFrame::kMagic) throw Internal("malformed message: it does not begin as one");
  const auto kind = std::to_string(static_cast<std::uint32_t>(frame.kind));
  if (!goes(frame.kind, direction)) throw Internal("malformed message: kind " + kind + " is not for this direction");
  if (frame.length > longest(frame.kind)) {
    throw Internal("malformed message: kind " + kind + " with a length of " + std::to_string(frame.length));
  }
  return frame;
}

std::array<std::byte, kMessageFrameBytes> to_bytes(const MessageFrame& frame) {
  std::array<std::byte, kMessageFrameBytes> bytes;
  std::memcpy(bytes.data(), &frame, sizeof frame);
  return bytes;
}

ConnectionAttempt::ConnectionAttempt(const Address& address, const JobKey& key, int this_rank)
    : where_("the messages port at " + address.to_string()),
      handshake_(key, Purpose::messages, this_rank, fresh_nonce()) {
  std::string cause = "there is no such address";
  for (const Endpoint& endpoint : resolve(address, false, cause)) {
    FileDescriptor fd;
    const int failure = begin_connect(endpoint, fd);
    if (failure == 0 || failure == EINPROGRESS) {
      socket_ = Socket(std::move(fd));
      return;
    }
    cause = error_text(failure);
  }
  throw PeerLost("cannot connect to " + where_ + ": " + cause);
}

bool ConnectionAttempt::read(std::span<std::byte> bytes) {
  const auto count = socket_.receive_some(bytes.subspan(received_));
  if (!count) throw PeerLost(where_ + " closed the connection");
  received_ += *count;
  if (received_ < bytes.size()) return false;
  received_ = 0;
  return true;
}

bool ConnectionAttempt::advance() {
  if (step_ == Step::connecting) {
    if (!wait_ready(socket_.fd(), true, Clock::now())) return false;
    if (const int failure = end_connect(socket_.fd()); failure != 0) {
      throw PeerLost("cannot connect to " + where_ + ": " + error_text(failure));
    }
    step_ = Step::awaiting_challenge;
  }
  if (step_ == Step::awaiting_challenge) {
    if (!read(challenge_)) return false;
    // A new connection has buffer space for these few bytes.
    if (socket_.send_some(handshake_.prove(challenge_)) != kProofBytes) throw PeerLost(where_ + " takes nothing");
    step_ = Step::awaiting_reply;
  }
  if (!read(reply_)) return false;
  handshake_.check(reply_);
  return true;
}

}  // namespace hvd
