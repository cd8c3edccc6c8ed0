// A system call has failed.
#pragma once

#include <string>

namespace hvd::launcher {

// Throws Internal: "<what>: <what errno says>".
[[noreturn]] void throw_errno(const std::string& what);

}  // namespace hvd::launcher
