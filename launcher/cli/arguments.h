// Splits hvdrun's arguments program by program: into hvdrun's own options in CLI11's syntax (options of other launchers
// are translated to them), and the arguments to pass to mpirun. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace hvd::launcher {

// A message about an option that has no effect, or is refused.
struct Diagnostic {
  enum class Counts { always, unless_mpirun_starts, if_mpirun_starts };  // when the diagnostic applies
  std::string text;
  bool is_refusal = false;
  Counts counts = Counts::always;
};

// The arguments of one program.
struct ProgramArguments {
  std::vector<std::string> options;     // long ones with two dashes; each with its value in the same word
  std::vector<std::string> for_mpirun;  // as typed, without options that mpirun does not have
  std::vector<std::string> command;
  std::vector<Diagnostic> diagnostics;
  bool is_last = true;
};

// Reads the programs' arguments one after the other. `first_app` has the options of the first program and of the job.
class ArgumentReader {
 public:
  ArgumentReader(const std::vector<std::string>& arguments, const CLI::App& first_app);

  // Reads up to the next colon. `app` has the options that this program may have. Throws InvalidArgument.
  ProgramArguments read_program(const CLI::App& app);

 private:
  using Argument = std::vector<std::string>::const_iterator;

  bool take_own(const CLI::App& app, ProgramArguments& program_arguments);
  bool take_other(const CLI::App& app, ProgramArguments& program_arguments);
  void add_own(const CLI::App& app, const std::string& option, const std::string& typed,
               ProgramArguments& program_arguments);
  static void pass_on(const std::string& name, const std::string& typed, std::vector<std::string> words,
                      ProgramArguments& program_arguments);
  std::string take_value(const std::string& name, const std::string& kind);
  [[noreturn]] void refuse(const CLI::App& app, const std::string& argument) const;

  const CLI::App& first_app_;
  Argument next_, end_;
  std::map<const void*, std::string> given_;  // by option that may be given once: as it was typed
};

// The first name with the least edit distance to `typed`; empty if all distances exceed a third of its length.
std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& names);

}  // namespace hvd::launcher
