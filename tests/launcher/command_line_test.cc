#include "launcher/command_line.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Arguments = std::vector<std::string>;

TEST_CASE("the number of processes is understood in every spelling") {
  const Arguments spellings[] = {{"-np", "4"},       {"--np", "4"}, {"-n", "4"}, {"-n4"},     {"--num-proc", "4"},
                                 {"-num-proc", "4"}, {"--np=4"},    {"-np=4"},   {"-n", "+4"}};
  for (Arguments arguments : spellings) {
    INFO(arguments.front());
    arguments.push_back("ls");
    const CommandLine line = parse_command_line(arguments);
    CHECK(line.num_proc == 4);
    CHECK(line.program == Arguments{"ls"});
  }
}

TEST_CASE("everything from the program's name on is the program's") {
  struct Row {
    Arguments arguments, program;
  };
  const Row rows[] = {
      {{"-np", "2", "python", "-x", "a.py", "-np", "3", "--help"}, {"python", "-x", "a.py", "-np", "3", "--help"}},
      {{"-np", "2", "--", "--odd", "-x"}, {"--odd", "-x"}},
      {{"-np", "2", "a", "--", "b"}, {"a", "--", "b"}},
      {{"-x", "-np", "-np", "1", "prog", ""}, {"prog", ""}},
      {{"--tag-output", "prog", "--verbose"}, {"prog", "--verbose"}},
  };
  for (const Row& row : rows) CHECK(parse_command_line(row.arguments).program == row.program);
}

TEST_CASE("options arrive where they belong") {
  const CommandLine line =
      parse_command_line({"-host", "localhost:3", "-x", "A", "-xB=1", "-x", "C=[1,2] \"x\"", "-x", "D=", "-x", "E=a=b",
                          "-output-filename", "logs dir", "-tag-output", "--verbose", "--grace", "0.25", "prog"});
  CHECK_FALSE(line.num_proc.has_value());
  CHECK(line.hosts == "localhost:3");
  CHECK(line.exports == Arguments{"A", "B=1", "C=[1,2] \"x\"", "D=", "E=a=b"});
  CHECK(line.output_directory == "logs dir");
  CHECK(line.tag_output);
  CHECK(line.verbose);
  CHECK(line.grace == 250ms);
  CHECK_FALSE(line.information.has_value());
}

TEST_CASE("what is not given has its default") {
  const CommandLine line = parse_command_line({"prog"});
  CHECK_FALSE(line.num_proc.has_value());
  CHECK(line.hosts.empty());
  CHECK(line.exports.empty());
  CHECK(line.output_directory.empty());
  CHECK_FALSE(line.tag_output);
  CHECK_FALSE(line.verbose);
  CHECK(line.grace == 1s);
}

TEST_CASE("--help and --version say something and need no program") {
  CHECK(parse_command_line({"--version"}).information == "hvdrun " HVD_VERSION "\n");
  for (const char* flag : {"--help", "-h", "-help"}) {
    const auto text = parse_command_line({flag}).information;
    REQUIRE(text.has_value());
    for (const char* part : {"Usage: hvdrun -np N", "--output-filename DIR", "--grace SECONDS", "hvdrun -np 4 "}) {
      CHECK(text->find(part) != std::string::npos);
    }
  }
}

TEST_CASE("a wrong command line is an error that names what is wrong") {
  struct Row {
    Arguments arguments;
    std::string in_message;
  };
  const Row rows[] = {
      {{}, "which program"},
      {{"-np", "2"}, "which program"},
      {{"-np", "2", "--"}, "which program"},
      {{"-np"}, "--np needs a value"},
      {{"-np", "", "ls"}, "--np needs a value"},
      {{"-np", "0", "ls"}, "at least one"},
      {{"-np", "-3", "ls"}, "at least one"},
      {{"-np", "four", "ls"}, "four"},
      {{"-np", "99999999999", "ls"}, "99999999999"},
      {{"-np", "2", "--bind-to", "core", "ls"}, "unknown option --bind-to"},
      {{"-bynode", "ls"}, "unknown option -bynode"},
      {{"--grace", "-1", "ls"}, "--grace"},
      {{"--grace", "nan", "ls"}, "--grace"},
      {{"-x", "=5", "ls"}, "a name is missing"},
  };
  for (const Row& row : rows) {
    INFO(row.in_message);
    try {
      parse_command_line(row.arguments);
      FAIL("no error");
    } catch (const InvalidArgument& error) {
      CHECK(std::string(error.what()).find(row.in_message) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace hvd::launcher
