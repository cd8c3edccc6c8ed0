// A pending send or receive. Moved to the channel's thread, which completes it.
#pragma once

#include <utility>

#include "core/base/clock.h"
#include "core/execution/channel.h"

namespace hvd {

struct Transfer {
  Message message;
  EnginesSubmission submission;
  TimePoint since{};
  bool told_of = false;  // whether its delay was logged
};

// Called once for each transfer. `source`: the sender, for a receive that has its message.
inline void complete(Transfer& transfer, const Status& status, int source = kAnyRank) {
  const EnginesSubmission submission = std::move(transfer.submission);
  submission->work.source = source;
  if (submission->work.complete(status)) submission->work.wake();
}

}  // namespace hvd
