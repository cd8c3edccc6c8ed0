// Messages for failed system calls.
#pragma once

#include <string>

namespace hvd {

// The text of an errno value. If a limit of this process is the reason, it names the limit and the option of ulimit
// that changes it: "Too many open files (this process may have 64: ulimit -n)".
std::string error_text(int error_number);

}  // namespace hvd
