// What Python's faulthandler writes of a process's threads, read for people. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hvd::launcher {

struct PythonFrame {
  std::string file;  // as Python names it
  int line = 0;
  std::string function;
  bool operator==(const PythonFrame&) const = default;
};

// "train.py:48 in load_batch"
std::string to_string(const PythonFrame& frame);

// Where the script is: of the thread that has answered, which is the main thread as a rule, the innermost frame that is
// neither in `package` (hvd's folder) nor in a library's folder; if there is none, the innermost outside `package`.
std::optional<PythonFrame> frame_of_script(std::string_view stack, std::string_view package);

}  // namespace hvd::launcher
