// Whose child this process is. Children inherit the variables that make a process a rank.
#pragma once

#include <optional>

#include "core/config.h"
#include "core/rendezvous/launch_environment.h"

namespace hvd {

// Whether `pid`, as this process sees it, has started this process, itself or through others that still live.
bool is_started_by(int pid);

// The process that has started this one, itself or through others that still live, and that is in a job as the rank
// that this one's variables would make it. Asked before this process joins: MPI and torchrun's store do not bear a rank
// that comes twice. Empty: there is none that this process may look into. `launcher` is that of `own`, this process's
// environment.
std::optional<int> rank_that_started_this(Launcher launcher, const Environment& own);

// Whether two environments are of the same rank of the same job of the launcher's. Pure.
bool is_same_rank(Launcher launcher, const Environment& one, const Environment& other);

// What can be done about it, for people.
inline constexpr const char* kAdviceForChildren =
    "let the rank itself call hvd, or start this process with HVD_SIZE=1, and without HVD_RANK and HOROVOD_RANK, "
    "to let it work alone";

}  // namespace hvd
