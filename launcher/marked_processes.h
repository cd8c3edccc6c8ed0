// The processes of one job on this host, found by what they carry in their environment, whoever their parent is.
#pragma once

#include <string_view>

#include "core/base/clock.h"

namespace hvd::launcher {

// Whether a process with this /proc/<pid>/environ has the mark among its variables: "NAME=value", or several of these
// with a zero byte between them, of which none may be missing. Pure.
bool carries_mark(std::string_view environment, std::string_view mark);

// SIGKILL to every process of this user with the mark, except this one, and again until two looks in a row have found
// none. Whether that was before the deadline. A process that has overwritten its environment is not found.
bool kill_marked(std::string_view mark, Deadline deadline);

}  // namespace hvd::launcher
