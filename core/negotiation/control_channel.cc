#include "core/negotiation/control_channel.h"

namespace hvd {

Status as_told(const Status& own, const std::string& finder) {
  if (own.code() == StatusCode::peer_lost) return own;
  return Status(StatusCode::aborted, finder + " has given up the job: " + own.message());
}

}  // namespace hvd
