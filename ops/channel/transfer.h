// A pending send or receive. Moved to the channel's thread, which completes it.
#pragma once

#include <utility>

#include "core/base/clock.h"
#include "core/execution/channel.h"

namespace hvd {

struct Transfer {
  Message message;
  EngineReference operation;
  TimePoint since{};
  bool told_of = false;  // whether its delay was logged
};

// Called once for each transfer. `source`: the sender, for a receive that has its message.
inline void complete(Transfer& transfer, const Status& status, int source = kAnyRank) {
  const EngineReference operation = std::move(transfer.operation);
  operation->completion.source = source;
  if (operation->completion.complete(status)) operation->completion.wake();
}

}  // namespace hvd
