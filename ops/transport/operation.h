// A posted send or receive, as every transport keeps it, and the texts of the transports' errors.
//
// Private to the transports. An OperationWindow belongs to one transport and is used on its thread; operations in it
// keep their addresses until they are waited for, so that queues may point to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>

#include "ops/transport/transport.h"

namespace hvd {

// A rank's name in messages: "rank 2 on host-b (pid 1234)".
using DescribeRank = std::function<std::string(int)>;

struct PostedMessage {
  enum class Kind { send, receive };

  Kind kind = Kind::send;
  int peer = -1;
  Tag tag{};
  std::span<const std::byte> outgoing = {};  // of a send
  std::span<std::byte> incoming = {};        // of a receive
  bool done = false;
  bool waited = false;

  std::size_t size() const { return kind == Kind::send ? outgoing.size() : incoming.size(); }
};

// "process set 0, call 17, step 3, 4096 bytes"
std::string describe_message(const Tag& tag, std::uint64_t bytes);

// The message of a Timeout: "waited 5.0 s for rank 2 on host-b (pid 1234) to send process set 0, ...".
std::string describe_timeout(const PostedMessage& operation, const std::string& peer_name, Duration waited);

// The receiver's error if a message differs from the posted receive.
std::string describe_mismatch(const PostedMessage& expected, const std::string& peer_name, const Tag& tag,
                              std::uint64_t bytes);

// The error if the peer has closed its end.
std::string describe_loss(const PostedMessage& operation, const std::string& peer_name);

// Operations by RequestId, numbered in order of posting, from the oldest that was not waited for to the newest.
class OperationWindow {
 public:
  PostedMessage& add(PostedMessage operation);
  Transport::RequestId newest() const { return first_ + operations_.size() - 1; }

  // Throws InvalidArgument for a request that was never returned or was already waited for.
  PostedMessage& find(Transport::RequestId request);
  void retire(PostedMessage& operation);

 private:
  std::deque<PostedMessage> operations_;
  Transport::RequestId first_ = 0;
};

}  // namespace hvd
