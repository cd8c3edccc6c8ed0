// Parses the stack traces that Python's faulthandler writes of a process's threads. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hvd::launcher {

struct PythonFrame {
  std::string file;  // as Python reports it
  int line = 0;
  std::string function;
  bool operator==(const PythonFrame&) const = default;
};

// "train.py:48 in load_batch"
std::string to_string(const PythonFrame& frame);

// Where the user's script is: in the thread that handled the signal, usually the main thread, the innermost frame that
// is neither in `package` (hvd's folder) nor in a library's folder; if there is none, the innermost outside `package`.
std::optional<PythonFrame> frame_of_script(std::string_view stack, std::string_view package);

}  // namespace hvd::launcher
