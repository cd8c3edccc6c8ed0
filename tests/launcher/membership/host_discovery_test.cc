#include <unistd.h>

#include <string>
#include <vector>

#include "core/base/error.h"
#include "launcher/membership/polled_script.h"
#include "tests/launcher/membership/ended_children.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("what a discovery script prints") {
  using Hosts = std::vector<HostSlots>;
  CHECK(parse_discovered_hosts("").empty());
  CHECK(parse_discovered_hosts("\n  \n").empty());
  CHECK(parse_discovered_hosts("a:2\n b \r\nuser@c:1") ==
        Hosts{{.host = "a", .slots = 2}, {.host = "b"}, {.host = "c", .slots = 1, .user = "user"}});
  for (const char* text : {"a:x", "a:2:3", ":2", "a b"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_discovered_hosts(text), Catch::Matchers::StartsWith("its list: "));
  }
}

namespace {

// Runs the script until `enough`, and returns what was found and complained of, in turn.
std::vector<std::string> discover(const std::string& command, std::size_t enough) {
  SignalSource signals;
  EventLoop loop;
  std::vector<std::string> heard;
  HostDiscovery discovery(loop, signals, command, 10ms,
                          {.found =
                               [&](const std::vector<HostSlots>& hosts) {
                                 std::string text;
                                 for (const HostSlots& host : hosts) {
                                   text += host.host + ":" + std::to_string(*host.slots) + " ";
                                 }
                                 heard.push_back(text);
                               },
                           .warning = [&](const std::string& line) { heard.push_back(line); }});
  run_until(
      loop, signals, [&] { return heard.size() >= enough; },
      [&](pid_t pid, ExitStatus status) { discovery.child_ended(pid, status); });
  return heard;
}

}  // namespace

TEST_CASE("a discovery script is run again and again, and only what changes is told") {
  // Each run is the next in a file: the same hosts twice, others, a failure twice, nonsense, and hosts again.
  const testing::TemporaryFolder folder;
  const std::string file = folder / "runs";
  const std::string script =
      "echo >> " + file + "; case $(wc -l < " + file +
      ") in 1|2) echo a:1;; 3) echo a:1; echo b:2;; 4|5) exit 3;; 6) echo a:b;; *) echo c:1;; esac";
  const std::vector<std::string> heard = discover(script, 5);
  REQUIRE(heard.size() >= 5);
  CHECK(heard[0] == "a:1 ");
  CHECK(heard[1] == "a:1 b:2 ");
  CHECK(heard[2].find(": ended with exit code 3; the hosts stay as they are") != std::string::npos);
  CHECK(heard[3].find("a:b") != std::string::npos);
  CHECK(heard[4] == "c:1 ");
}

TEST_CASE("a discovery script may stay, and is started again if it ends") {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "runs";
  const std::string script = "echo >> " + file + "; case $(wc -l < " + file +
                             ") in 1) echo a:1; echo ---; printf 'b:1\n--'; sleep 0.05; printf -- '-\n---\n'; exit 4;;"
                             " *) trap 'rm -f " +
                             file + "; exit' TERM; echo c---:1; echo ---; while :; do sleep 0.01; done;; esac";
  const std::vector<std::string> heard = discover(script, 5);
  REQUIRE(heard.size() >= 5);
  CHECK(heard[0] == "a:1 ");
  CHECK(heard[1] == "b:1 ");
  CHECK(heard[2].empty());
  CHECK(heard[3].find("ended with exit code 4, and is started again; the hosts stay as they are") != std::string::npos);
  CHECK(heard[4] == "c---:1 ");
  CHECK(access(file.c_str(), F_OK) != 0);  // it was given the time to tidy up
}

TEST_CASE("a discovery script that marks the end of its list, and ends, has not failed") {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "runs";
  const std::string script =
      "echo >> " + file + "; case $(wc -l < " + file + ") in 1|2) echo a:1;; *) echo b:1;; esac; echo ---";
  CHECK(discover(script, 2) == std::vector<std::string>{"a:1 ", "b:1 "});
}
