// Messages from one rank of the job to another. Core names no implementation: ops/channel is it.
//
// A message goes to a receive of the same channel and tag that names its sender, or any rank; of several messages, or
// several receives, that would do, the first. A channel is a number that the ranks agree on, for instance one for each
// group of a framework, so that equal tags of different groups do not meet.
//
// All functions but the destructor: any thread. Nothing here waits for another rank, except for close(), a second at
// most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/base/status.h"
#include "core/execution/backend_context.h"
#include "core/submission/submission.h"

namespace hvd {

inline constexpr int kAnyRank = -1;

struct Message {
  int peer = kAnyRank;  // a rank of the job, other than this one; any, for receives only
  std::uint64_t channel = 0;
  std::int64_t tag = 0;
  std::span<std::byte> memory;  // the caller's until the work is done; of a send it is only read
};

class Channel {
 public:
  virtual ~Channel() = default;

  // The work is done when the memory may be used again, which says nothing of the receiver; it fails with Mismatch if
  // the receiver has already told that its memory has another size.
  virtual void send(const Message& message, EnginesSubmission submission) = 0;
  // The work is done when the message is there; Work::source tells where it came from. A message of another size than
  // the memory's is a Mismatch, and is gone.
  virtual void receive(const Message& message, EnginesSubmission submission) = 0;

  // The job is over: what is under way ends with the reason. Messages that have arrived may still be received.
  virtual void end(const Status& reason) = 0;
  // This rank leaves: what others still read of it is sent, what is under way ends. Idempotent.
  virtual void close() = 0;
};

using ChannelFactory = std::function<std::unique_ptr<Channel>(const BackendContext&)>;

}  // namespace hvd
