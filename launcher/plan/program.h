// Finds the program before anything is started, as a shell would, so that a typing error is one line and not N.
#pragma once

#include <stdexcept>
#include <string>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// The exit code is the shells': 127 not found, 126 found but not executable.
class ProgramUnusable : public std::runtime_error {
 public:
  ProgramUnusable(int exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// PATH, or where there is none the folders in which shells and execvp() look then.
std::string search_path_of(const Environment& environment);

// A name with a slash is taken as it stands, any other is looked for in the folders of `search_path` (PATH's format).
// Throws ProgramUnusable.
std::string find_program(const std::string& name, const std::string& search_path);

// The same for a program that is to start in `folder` (empty: where this process is); absolute, then.
std::string find_program_from(const std::string& folder, const std::string& name, const std::string& search_path);

}  // namespace hvd::launcher
