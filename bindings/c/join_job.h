// Creates the Runtime of this process from the launcher's environment or the caller's rendezvous. Called by Instance.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/bootstrap/rendezvous.h"
#include "core/config.h"
#include "core/runtime/runtime.h"

namespace hvd {

// Joins the job. `rendezvous` or, without it, the environment describes this process; only this function knows the
// differences between launchers. All processes of the job must call; returns when all have. `epoch` counts the calls of
// this process. Throws Error; rank 0 logs warnings about the configuration.
std::shared_ptr<Runtime> join_job(const Environment& environment, const std::optional<Rendezvous>& rendezvous,
                                  int epoch);

}  // namespace hvd
