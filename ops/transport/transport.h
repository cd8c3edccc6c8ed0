// Sends bytes between two ranks. This header is the specification. TcpTransport and PluginTransport implement it;
// tests/support wraps them to inject faults.
//
// A transport knows no collective: between each pair of ranks it keeps, in each direction, an ordered sequence of
// messages. Messages posted to a peer arrive there in the order of posting and are matched with that peer's receives in
// the order of their posting. Both sides name a message by its Tag and length; if they differ, the ranks are out of
// step and the receiver throws Internal with both values, since received data is never trusted.
//
// Thread: all calls come from one thread at a time (the one that drives the engine). Posting copies nothing: the memory
// of a posted send or receive belongs to the transport until wait() for its request has returned (wait_until(): true),
// or a call has thrown.
//
// The waits make progress on all posted operations, for every peer at once, so that posting all receives and sends of a
// step and then waiting for them in any order cannot deadlock.
//
// Errors: PeerLost (connection closed), Timeout (deadline, names peer and tag), Internal (protocol), or the error that
// the AbortFlag given to the constructor was raised with, detected within kAbortPollInterval. After an exception the
// transport may only be destroyed. The destructor flushes posted sends for a bounded time, because peers may still wait
// for messages of a rank that leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"

namespace hvd {

// How long a transport's destructor waits until peers, or the kernel, have taken the posted messages.
inline constexpr Duration kTransportFlushTime = std::chrono::seconds(1);

struct Tag {
  std::uint32_t process_set = 0;
  std::uint32_t step = 0;      // within the collective; chosen by the algorithm
  std::uint64_t sequence = 0;  // CollectiveCall::sequence

  bool operator==(const Tag&) const = default;
};

class Transport {
 public:
  using RequestId = std::uint64_t;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // `peer` is a global rank other than rank(). A message may have zero bytes.
  virtual RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) = 0;
  virtual RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) = 0;

  // Returns when the operation is complete: a sent message's memory may be reused, a received message has arrived.
  virtual void wait(RequestId request, Deadline deadline) = 0;

  // Like wait(), for messages that may take long: returns false if the operation is not complete by `until`, which is
  // not an error; the request must then be waited for again. Checks at least once.
  virtual bool wait_until(RequestId request, TimePoint until) = 0;
};

// ---- What implementations share.

// The ranks from 0 to size - 1.
std::vector<int> all_ranks(int size);

// A posted send or receive.
struct PostedMessage {
  enum class Kind { send, receive };

  Kind kind = Kind::send;
  int peer = -1;
  Tag tag{};
  std::span<const std::byte> outgoing = {};  // of a send
  std::span<std::byte> incoming = {};        // of a receive
  bool done = false;
  bool waited = false;

  std::size_t size() const;
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

// Posted operations by RequestId. Requests are numbered in order of posting; the window contains those from the oldest
// that is not retired to the newest. An operation keeps its address until it is retired, so queues may point to it.
// Used on the transport's thread.
class OperationWindow {
 public:
  PostedMessage& add(PostedMessage operation);
  Transport::RequestId newest() const;

  // Throws InvalidArgument for a request that was never returned or was already waited for.
  PostedMessage& find(Transport::RequestId request);
  void retire(PostedMessage& operation);

 private:
  std::deque<PostedMessage> operations_;
  Transport::RequestId first_ = 0;
};

}  // namespace hvd
