#include "core/control/tree/control_channel.h"

namespace hvd {

Status as_told(const Status& own, const Topology& topology) {
  if (own.code() == StatusCode::peer_lost) return own;
  return Status(StatusCode::aborted, topology.describe(topology.rank) + " has given up the job: " + own.message(),
                topology.job_rank());
}

void end_job(const Status& own, const Topology& topology, AbortFlag& abort, ControlChannel& channel) {
  const int culprit = own.code() == StatusCode::peer_lost ? own.culprit() : topology.job_rank();
  abort.raise(Status(own.code(), own.message(), culprit),
              [&](const Status&) { channel.broadcast_abort(as_told(own, topology)); });
}

}  // namespace hvd
