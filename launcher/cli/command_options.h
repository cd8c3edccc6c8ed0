// Declares hvdrun's own options for CLI11: their names, their --help texts, and variables for plain values. Pure.
#pragma once

#include <string>

#include "launcher/cli/command_line.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace hvd::launcher {

// Options whose values have to be checked or combined have no variable here: the parser reads them from the app.
void add_options_of_program(CLI::App& app, ProgramLine& program);
void add_options_of_job(CLI::App& app, CommandLine& line);

// The text that --help prints.
std::string help_text(const CLI::App& app);

// The script that completes hvdrun's options in a shell. `shell`: bash or zsh; throws InvalidArgument for another.
// `app` has all options. Behind them, the script completes the program, and its arguments by the shell's own rules.
std::string completion_script(const std::string& shell, const CLI::App& app);

}  // namespace hvd::launcher
