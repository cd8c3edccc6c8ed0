// Looks up the program as a shell does, before any rank is started, so that a mistyped name is one error and not N.
#pragma once

#include <stdexcept>
#include <string>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// The exit code is that of a shell: 127 for not found, 126 for not executable.
class ProgramUnusable : public std::runtime_error {
 public:
  ProgramUnusable(int exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// PATH; if it is not set, the default path of shells and execvp().
std::string search_path_of(const Environment& environment);

// Returns a name with a slash unchanged; looks up any other in the folders of `search_path` (PATH's format). Throws
// ProgramUnusable.
std::string find_program(const std::string& name, const std::string& search_path);

// The same for a program that is to start in `folder` (empty: this process's working directory); if a folder is given,
// the result is absolute.
std::string find_program_from(const std::string& folder, const std::string& name, const std::string& search_path);

}  // namespace hvd::launcher
