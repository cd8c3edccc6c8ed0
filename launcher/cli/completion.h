// Scripts that complete hvdrun's command line in a shell, made from the options that the parser has. Pure.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace hvd::launcher {

// `shell`: bash or zsh; throws InvalidArgument for another. `app` has all options. Behind the options the program is
// completed, and behind it the program's own arguments, by whatever the shell has for it.
std::string completion_script(const std::string& shell, const CLI::App& app);

}  // namespace hvd::launcher
