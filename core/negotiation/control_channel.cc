#include "core/negotiation/control_channel.h"

namespace hvd {

Status as_told(const Status& own, const std::string& finder) {
  if (own.code() == StatusCode::peer_lost) return own;
  return Status(StatusCode::aborted, finder + " has given up the job: " + own.message());
}

void end_job(const Status& own, const std::string& finder, AbortFlag& abort, ControlChannel& channel) {
  abort.raise(own, [&](const Status&) { channel.broadcast_abort(as_told(own, finder)); });
}

}  // namespace hvd
