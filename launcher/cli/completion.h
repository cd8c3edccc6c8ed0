// Generates the shell completion scripts for hvdrun's command line from the options of the parser. Pure.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace hvd::launcher {

// `shell`: bash or zsh; throws InvalidArgument for another. `app` has all options. After the options, the script
// completes the program, and then the program's arguments with the shell's completion for that program.
std::string completion_script(const std::string& shell, const CLI::App& app);

}  // namespace hvd::launcher
