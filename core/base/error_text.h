// What the operating system says of a call that has failed.
#pragma once

#include <string>

namespace hvd {

// The text of an errno value; where a limit of this process is the reason, with the limit and the option of ulimit that
// changes it: "Too many open files (this process may have 64: ulimit -n)".
std::string error_text(int error_number);

}  // namespace hvd
