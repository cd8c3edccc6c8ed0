// One send or receive that is under way, and its end. Moves through the channel's thread.
#pragma once

#include <utility>

#include "core/base/clock.h"
#include "core/execution/channel.h"

namespace hvd {

struct Transfer {
  Message message;
  EnginesSubmission submission;
  TimePoint since{};
  bool told_of = false;  // that it takes long
};

// Once for each. `source`: of a receive that has its message.
inline void complete(Transfer& transfer, const Status& status, int source = kAnyRank) {
  const EnginesSubmission submission = std::move(transfer.submission);
  submission->work.source = source;
  if (submission->work.complete(status)) submission->work.wake();
}

}  // namespace hvd
