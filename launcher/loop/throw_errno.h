// Throws errno as an hvd error.
#pragma once

#include <cerrno>
#include <string>

#include "core/base/error.h"

namespace hvd::launcher {

// Throws Internal with the text "<what>: <text of errno>".
[[noreturn]] inline void throw_errno(const std::string& what) { throw Internal(what + ": " + error_text(errno)); }

}  // namespace hvd::launcher
