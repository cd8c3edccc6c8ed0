#include "launcher/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "core/base/error.h"
#include "core/base/text.h"
#include "launcher/cli/other_options.h"

namespace hvd::launcher {
namespace {

constexpr const char* kNextProgram = ":";

std::string name_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

[[noreturn]] void refuse_value(const std::string& typed) {
  throw InvalidArgument(typed + ": " + name_of(typed) + " takes no value");
}

// torchrun also accepts underscores: --nproc_per_node.
std::string with_dashes_inside(std::string argument) {
  const auto name_end = argument.begin() + static_cast<std::ptrdiff_t>(name_of(argument).size());
  std::replace(argument.begin(), name_end, '_', '-');
  return argument;
}

// "-np" and "-np=4" become "--np" and "--np=4" if there is such an option; "-n4" stays.
std::string with_two_dashes(const CLI::App& app, const std::string& argument) {
  if (argument.size() < 3) return argument;
  // "--n", as Open MPI has it, becomes "-n".
  std::string letter = argument.substr(1);
  if (argument.size() == 3 && argument[1] == '-' && app.get_option_no_throw(letter) != nullptr) return letter;
  const std::string candidate = with_dashes_inside(argument[1] == '-' ? argument : "-" + argument);
  return app.get_option_no_throw(name_of(candidate)) != nullptr ? candidate : argument;
}

// Accepts "-n4", "-xA=1", "-Hlocalhost:4" and single letters; -xterm and -nolocal are other options, with one dash.
bool has_attached_value(const std::string& argument) {
  if (argument.size() == 2) return true;
  const std::string value = argument.substr(2);
  switch (argument[1]) {
    case 'n':
    case 'c':
    case 'N':
    case 'p':
    case 'r':
    case 't': return std::isdigit(static_cast<unsigned char>(value.front())) != 0;
    case 'x': return value.find('=') != std::string::npos;
    case 'H': return value.find(':') != std::string::npos;
    default: return false;
  }
}

// Options that hvdrun handles itself even if mpirun starts the processes.
bool is_done_here(const std::string& name) {
  constexpr const char* kNames[] = {
      "--launcher", "--mpi",    "--gloo",   "--genv",        "--genvlist",         "--config-file",
      "-m",         "--module", "--python", "--no-python",   "--dry-run",          "-q",
      "--quiet",    "--help",   "-h",       "--check-build", "--allow-run-as-root"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

bool goes_to_mpirun(const std::string& name) {
  constexpr const char* kOtherwise[] = {"--launcher", "--genv", "--genvlist"};  // Hydra's, which Open MPI does not know
  return is_known_to(kMpirun | kHydra, name) && std::ranges::find(kOtherwise, name) == std::end(kOtherwise);
}

bool may_repeat(const CLI::Option& option) {
  return option.get_expected_min() == 0 || option.get_items_expected_max() > 1;
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& names) {
  std::optional<std::string> nearest;
  std::size_t least = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t edits = edit_distance(typed, name);
    if (edits >= least) continue;
    least = edits;
    nearest = name;
  }
  return nearest;
}

ArgumentReader::ArgumentReader(const std::vector<std::string>& arguments, const CLI::App& first_app)
    : first_app_(first_app), next_(arguments.begin()), end_(arguments.end()) {}

void ArgumentReader::refuse(const CLI::App& app, const std::string& argument) const {
  if (first_app_.get_option_no_throw(name_of(with_two_dashes(first_app_, argument))) != nullptr) {
    throw InvalidArgument(argument + " is for the whole job: put it before the first program");
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  for (const OtherOption& option : other_options()) {
    if (option.treatment != Treatment::refused) {
      names.emplace_back(option.name.substr(option.name.find_first_not_of('-')));
    }
  }
  const auto first = argument.find_first_not_of('-');
  const std::string typed = first == std::string::npos ? "" : argument.substr(first, argument.find('=') - first);
  const auto nearest = nearest_name(typed, names);
  throw InvalidArgument(
      "unknown option " + argument +
      (nearest ? "; did you mean --" + *nearest + "?" : " (the program's own options stand behind its name)"));
}

std::string ArgumentReader::take_value(const std::string& name, const std::string& kind) {
  if (next_ == end_ || next_->empty()) throw InvalidArgument(name + " needs a value: " + kind);
  return *next_++;
}

void ArgumentReader::add_own(const CLI::App& app, const std::string& option, const std::string& typed,
                             ProgramArguments& program_arguments) {
  const bool is_long = option.starts_with("--");
  const std::string name = is_long ? name_of(option) : option.substr(0, 2);
  const CLI::Option* const own = app.get_option_no_throw(name);
  if (own == nullptr) refuse(app, name);
  if (!may_repeat(*own)) {
    const auto [earlier, is_first] = given_.try_emplace(own, typed);
    if (!is_first) throw InvalidArgument(earlier->second + " and " + typed + " say the same thing: give one of them");
  }
  program_arguments.options.push_back(option);
}

// Passes one of hvdrun's own options, as these words, to mpirun, or reports that it has no effect there.
void ArgumentReader::pass_on(const std::string& name, const std::string& typed, std::vector<std::string> words,
                             ProgramArguments& program_arguments) {
  if (goes_to_mpirun(name)) {
    program_arguments.for_mpirun.insert(program_arguments.for_mpirun.end(), words.begin(), words.end());
  } else if (!is_done_here(name)) {
    program_arguments.diagnostics.push_back(
        {.text = name_of(typed) + " has no effect with --mpi: mpirun has no such option",
         .counts = Diagnostic::Counts::if_mpirun_starts});
  }
}

// Takes one of hvdrun's own options. The value is attached to it, so that it may begin with a dash.
bool ArgumentReader::take_own(const CLI::App& app, ProgramArguments& program_arguments) {
  std::string option = with_two_dashes(app, *next_);
  const bool is_long = option.starts_with("--");
  // "-n=4", as argparse has it. CLI11 would take the sign for a part of the value.
  const bool has_sign = !is_long && option.size() > 3 && option[2] == '=';
  if (has_sign) option.erase(2, 1);
  if (!is_long && !has_sign && !has_attached_value(option)) return false;
  const auto equals = is_long ? option.find('=') : std::string::npos;
  const std::string name = is_long ? option.substr(0, equals) : option.substr(0, 2);
  const CLI::Option* const own = app.get_option_no_throw(name);
  if (own == nullptr || (has_sign && own->get_expected_min() == 0)) return false;
  const Argument typed = next_++;
  const bool is_attached = is_long ? equals != std::string::npos : option.size() > 2;
  if (own->get_expected_min() == 0 && is_attached) refuse_value(*typed);
  if (own->get_expected_min() > 0 && !is_attached) {
    option += (is_long ? "=" : "") + take_value(name, own->get_option_text());
    if (name == "--mca" || name == "--gmca") option += "=" + take_value(name, own->get_option_text());
    const bool is_pair =
        (name == "--env" || name == "--genv") && option.find('=', name.size() + 1) == std::string::npos;
    if (is_pair) {  // as in MPICH's mpiexec; the value may be empty
      if (next_ == end_) throw InvalidArgument(name + " needs a name and a value: " + name + " VAR VALUE");
      option += "=" + *next_++;
    }
  }
  add_own(app, option, *typed, program_arguments);
  pass_on(name, *typed, {typed, next_}, program_arguments);
  return true;
}

// Takes an option of another launcher.
bool ArgumentReader::take_other(const CLI::App& app, ProgramArguments& program_arguments) {
  const std::string argument = with_dashes_inside(*next_);
  const std::string name = name_of(argument);
  const OtherOption* const other = find_other_option(name);
  if (other == nullptr || other->treatment == Treatment::same || other->treatment == Treatment::different) return false;
  const Argument typed = next_++;
  if (other->values == 0 && argument.size() > name.size()) refuse_value(*typed);
  std::string value;
  for (int i = 0; i < other->values; ++i) {
    const bool is_attached = i == 0 && argument.size() > name.size();
    value += (i > 0 ? "=" : "") + (is_attached ? argument.substr(name.size() + 1) : take_value(*typed, "VALUE"));
  }
  const bool mpirun_knows = (other->known_to & (kMpirun | kHydra)) != 0;
  if (mpirun_knows) program_arguments.for_mpirun.insert(program_arguments.for_mpirun.end(), typed, next_);
  if (other->treatment != Treatment::alias) {
    const bool is_refusal = other->treatment == Treatment::refused;
    program_arguments.diagnostics.push_back(
        {.text = name_of(*typed) + (is_refusal ? ": " : " has no effect: ") + std::string(other->text),
         .is_refusal = is_refusal,
         .counts = mpirun_knows ? Diagnostic::Counts::unless_mpirun_starts : Diagnostic::Counts::always});
    return true;
  }
  for (const std::string& option : expand_alias(*other, value)) {
    add_own(app, option, name_of(*typed), program_arguments);
    if (mpirun_knows) continue;
    const bool is_long = option.starts_with("--");
    const std::string own_name = is_long ? name_of(option) : option.substr(0, 2);
    std::vector<std::string> words{own_name};
    if (option.size() > own_name.size()) words.push_back(option.substr(own_name.size() + (is_long ? 1 : 0)));
    pass_on(own_name, *typed, std::move(words), program_arguments);
  }
  return true;
}

ProgramArguments ArgumentReader::read_program(const CLI::App& app) {
  ProgramArguments program_arguments;
  if (&app != &first_app_) given_.clear();
  while (next_ != end_ && next_->size() > 1 && next_->front() == '-' && *next_ != "--") {
    if (!take_own(app, program_arguments) && !take_other(app, program_arguments))
      refuse(app, with_two_dashes(app, *next_));
  }
  if (next_ != end_ && *next_ == "--") ++next_;
  const Argument colon = std::find(next_, end_, kNextProgram);
  program_arguments.command.assign(next_, colon);
  program_arguments.is_last = colon == end_;
  next_ = program_arguments.is_last ? end_ : colon + 1;
  return program_arguments;
}

}  // namespace hvd::launcher
