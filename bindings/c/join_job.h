// From what a launcher has left in the environment, or from what the caller says, to a runtime.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/config.h"
#include "core/rendezvous/rendezvous.h"
#include "core/runtime/runtime.h"

namespace hvd {

// What process launchers leave to be done is known to them alone: `rendezvous`, if given, else the environment, says
// who this process is. All processes of the job call; returns when all have. `epoch` counts the calls of this process.
// Throws Error; warnings about the configuration are logged by rank 0.
std::shared_ptr<Runtime> join_job(const Environment& environment, const std::optional<Rendezvous>& rendezvous,
                                  int epoch);

}  // namespace hvd
