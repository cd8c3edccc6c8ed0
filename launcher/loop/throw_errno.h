// Throws what errno says as an error of hvd's.
#pragma once

#include <cerrno>
#include <string>

#include "core/base/error.h"
#include "core/base/error_text.h"

namespace hvd::launcher {

// Throws Internal: "<what>: <what errno says>".
[[noreturn]] inline void throw_errno(const std::string& what) { throw Internal(what + ": " + error_text(errno)); }

}  // namespace hvd::launcher
