// Finds a rank among the ancestors of this process: children inherit the variables that make a process a rank.
#pragma once

#include <optional>

#include "core/bootstrap/launch_environment.h"
#include "core/config.h"

namespace hvd {

// Whether `pid`, in this process's pid namespace, is an ancestor of this process, through processes that still live.
bool is_started_by(int pid);

// The ancestor of this process, through processes that still live, that is in a job as the rank that this process's
// variables describe. Called before this process joins: MPI and torchrun's store do not tolerate a rank that comes
// twice. Empty if there is none that this process may inspect. `launcher` is that of `own`, this process's environment.
std::optional<int> rank_that_started_this(Launcher launcher, const Environment& own);

// Whether two environments are of the same rank of the same job of that launcher. Pure.
bool is_same_rank(Launcher launcher, const Environment& one, const Environment& other);

// What the user can do about it.
inline constexpr const char* kAdviceForChildren =
    "let the rank itself call hvd, or start this process with HVD_SIZE=1, and without HVD_RANK and HOROVOD_RANK, "
    "to let it work alone";

}  // namespace hvd
