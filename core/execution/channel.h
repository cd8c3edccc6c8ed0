// Point-to-point messages between ranks of the job. Core knows the interface only: ops/channel implements it.
//
// A message matches a receive of the same channel and tag that names its sender or any rank; the first of several
// matching messages or receives is taken. A channel is a number that the ranks agree on, for instance one for each
// group of a framework, so that equal tags of different groups do not match.
//
// All functions except the destructor: any thread. None waits for another rank, except close(), for at most a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/base/status.h"
#include "core/execution/backend.h"
#include "core/operation/operation.h"

namespace hvd {

inline constexpr int kAnyRank = -1;

struct Message {
  int peer = kAnyRank;  // a rank of the job other than this one; kAnyRank for receives only
  std::uint64_t channel = 0;
  std::int64_t tag = 0;
  std::span<std::byte> memory;  // owned by the caller, in use until the work is done; a send only reads it
};

class Channel {
 public:
  virtual ~Channel() = default;

  // The work is done when the memory may be reused, which does not imply that the message was received; it fails with
  // Mismatch if the receiver has already reported that its memory has another size.
  virtual void send(const Message& message, EngineReference operation) = 0;
  // The work is done when the message has arrived; Completion::source is its sender. A message whose size differs from
  // the memory's fails with Mismatch and is discarded.
  virtual void receive(const Message& message, EngineReference operation) = 0;

  // The job is over: operations in progress end with the reason. Messages that have arrived may still be received.
  virtual void end(const Status& reason) = 0;
  // This rank leaves: sends what other ranks still read from it, ends what is in progress. Idempotent.
  virtual void close() = 0;
};

using ChannelFactory = std::function<std::unique_ptr<Channel>(const BackendContext&)>;

}  // namespace hvd
