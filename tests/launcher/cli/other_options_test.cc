#include "launcher/cli/other_options.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "launcher/cli/command_line.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Arguments = std::vector<std::string>;

// A value that the option takes, where 1 is none.
std::string value_for(std::string_view name) {
  static const std::map<std::string_view, std::string> kValues = {
      {"--launcher", "ssh"}, {"-bootstrap", "ssh"}, {"--bind-to", "core"}, {"-binding", "core"},
      {"--map-by", "node"},  {"--rank-by", "node"}, {"--ppr", "2:socket"}, {"--cpu-set", "0-1"},
      {"--tee", "0"},        {"-t", "0"},           {"--redirects", "0"},  {"-r", "0"},
      {"--output", "tag"},   {"--node-rank", "0"},  {"--display", "map"},  {"--log-level", "DEBUG"},
      {"-envlist", "A,B"},
  };
  const auto found = kValues.find(name);
  return found == kValues.end() ? "1" : found->second;
}

Arguments line_with(std::string name, const OtherOption& option) {
  Arguments arguments{std::move(name)};
  for (int i = 0; i < option.values; ++i) arguments.push_back(value_for(option.name));
  arguments.emplace_back("train.py");
  return arguments;
}

// Its names: with one dash or two, and as torchrun writes it, too.
Arguments spellings(const OtherOption& option) {
  const std::string name(option.name.substr(option.name.find_first_not_of('-')));
  if (name.size() == 1) return {"-" + name};
  Arguments all{"-" + name, "--" + name};
  if (option.known_to == kTorchrun) {
    std::string with_underscores = name;
    std::ranges::replace(with_underscores, '-', '_');
    all.push_back("--" + with_underscores);
  }
  return all;
}

CommandLine without_mpirun(CommandLine line) {
  for (ProgramLine& program : line.programs) program.for_mpirun.clear();
  return line;
}

std::string error_of(const Arguments& arguments) {
  try {
    parse_command_line(arguments);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

void check_alias(const Arguments& arguments, const OtherOption& option) {
  Arguments expanded = expand_alias(option, option.values == 2 ? "1=1" : value_for(option.name));
  expanded.emplace_back("train.py");
  CHECK(without_mpirun(parse_command_line(arguments)) == without_mpirun(parse_command_line(expanded)));
}

TEST_CASE("every option of the other launchers is treated as the table says") {
  for (const OtherOption& option : other_options()) {
    for (const std::string& name : spellings(option)) {
      const Arguments arguments = line_with(name, option);
      INFO(name << ": " << option.text);
      const std::string text(option.text);
      switch (option.treatment) {
        case Treatment::same: {
          const auto is_of_elastic_jobs = [](const std::string& note) {
            return note.find("no effect without --min-np") != std::string::npos;
          };
          CHECK(std::ranges::all_of(parse_command_line(arguments).notes, is_of_elastic_jobs));
          break;
        }
        case Treatment::different: CHECK(error_of(arguments).find("unknown") == std::string::npos); break;
        case Treatment::alias: check_alias(arguments, option); break;
        case Treatment::no_effect: {
          CommandLine line = parse_command_line(arguments);
          CHECK(line.notes == Arguments{name + " has no effect: " + text});
          line.notes.clear();
          CHECK(without_mpirun(line) == without_mpirun(parse_command_line({"train.py"})));
          break;
        }
        case Treatment::refused: CHECK(error_of(arguments) == name + ": " + text); break;
      }
    }
  }
}

TEST_CASE("an option of another launcher has one meaning, and its reason is said") {
  std::map<std::string, const OtherOption*> seen;
  for (const OtherOption& option : other_options()) {
    INFO(option.name);
    const bool says_why = option.treatment == Treatment::same || !option.text.empty();
    CHECK(says_why);
    CHECK(option.known_to != 0);
    const auto [earlier, is_first] = seen.try_emplace(std::string(option.name), &option);
    const bool is_local = option.treatment == Treatment::same || option.treatment == Treatment::different;
    CHECK((is_first || (is_local && (earlier->second->known_to & option.known_to) == 0)));
  }
}

TEST_CASE("what mpirun knows goes to it as it was typed, and the rest as what it stands for") {
  const CommandLine line =
      parse_command_line({"--mpi", "--rankfile", "ranks", "-np", "2", "--report-pid=-", "--log-dir", "logs",
                          "--nproc_per_node", "2", "--cycle-time-ms", "1", "train.py"});
  CHECK(mpirun_arguments(line, false) == Arguments{"--rankfile", "ranks", "-np", "2", "--report-pid=-",
                                                   "--output-filename", "logs", "-N", "2", "--oversubscribe", "python3",
                                                   "-u", "train.py"});
  CHECK(line.notes.empty());
  CHECK(line.exports == Arguments{"HVD_CYCLE_TIME=1"});
  CHECK(parse_command_line({"--mpi", "--disable-cache", "ls"}).notes.size() == 1);
  CHECK(error_of({"--mpi", "--jsrun", "ls"}).starts_with("--jsrun: "));
  const CommandLine hosts = parse_command_line({"--mpi", "-H", "a:1", "--autotune", "x", ":", "-np", "1", "y"});
  CHECK(mpirun_arguments(hosts, false) == Arguments{"-H", "a:1", "x", ":", "-np", "1", "y"});
  CHECK(mpirun_arguments(hosts, true) ==
        Arguments{"-H", "a:1", "-x", "HVD_AUTOTUNE", "x", ":", "-np", "1", "-x", "HVD_AUTOTUNE", "y"});
}

TEST_CASE("an option that takes no value is given none") {
  CHECK(error_of({"--mpi=false", "ls"}) == "--mpi=false: --mpi takes no value");
  CHECK(error_of({"-tag_output=0", "ls"}) == "-tag_output=0: -tag_output takes no value");
  CHECK(error_of({"--autotune=0", "ls"}) == "--autotune=0: --autotune takes no value");
  CHECK(error_of({"-no-stall-check=false", "ls"}) == "-no-stall-check=false: -no-stall-check takes no value");
  CHECK(error_of({"--disable_cache=", "ls"}) == "--disable_cache=: --disable_cache takes no value");
}

TEST_CASE("the document has a row for each option") {
  const std::string document = other_options_document();
  CHECK(static_cast<std::size_t>(std::ranges::count(document, '\n')) > other_options().size());
  for (const char* row : {"| `--npernode` | mpirun | stands for `-N VALUE` |",
                          "| `--nproc-per-node` | torchrun | stands for `-N VALUE --oversubscribe --python` |",
                          "| `--fusion-threshold-mb` | horovodrun | stands for `--genv HVD_FUSION_THRESHOLD=BYTES` |",
                          "| `-np` | horovodrun, mpirun, mpiexec | same |", "| `-p` | mpirun 5 | different: "}) {
    INFO(row);
    CHECK(document.find(row) != std::string::npos);
  }
}

}  // namespace
}  // namespace hvd::launcher
