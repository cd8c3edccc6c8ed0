#include "launcher/cli/arguments.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("the nearest name is the one with the fewest typing errors, if they are few") {
  const std::vector<std::string> names{"np", "host", "hosts", "hostfile", "tag-output", "timestamp-output"};
  struct Row {
    const char* typed;
    std::optional<std::string> nearest;
  };
  const Row rows[] = {{"host", "host"},
                      {"hsot", "host"},
                      {"hostfil", "hostfile"},
                      {"tagoutput", "tag-output"},
                      {"timstamp-ouptut", "timestamp-output"},
                      {"n", "np"},
                      {"pn", "np"},
                      {"bind-to", std::nullopt},
                      {"", std::nullopt},
                      {"xyz", std::nullopt}};
  for (const Row& row : rows) {
    INFO(row.typed);
    CHECK(nearest_name(row.typed, names) == row.nearest);
  }
}

}  // namespace
}  // namespace hvd::launcher
