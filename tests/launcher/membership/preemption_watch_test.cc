#include <unistd.h>

#include <string>
#include <vector>

#include "launcher/membership/polled_script.h"
#include "tests/launcher/membership/ended_children.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("a preemption script announces the end of the host once, and what it cannot do is told once") {
  // Its runs: no such program twice, no notice, and notices from then on.
  const std::string file = "/tmp/hvd-preemption-" + std::to_string(getpid());
  const std::string runs = "$(wc -l < " + file + ")";
  const std::string script =
      "echo >> " + file + "; case " + runs + " in 1|2) echo no script >&2; exit 127;; 3) exit 22;; *) exit 0;; esac";
  SignalSource signals;
  EventLoop loop;
  std::vector<std::string> heard;
  int runs_ended = 0;
  PreemptionWatch watch(loop, signals, script, 10ms,
                        {.preempted = [&] { heard.emplace_back("preempted"); },
                         .warning = [&](const std::string& line) { heard.push_back(line); }});
  run_until(
      loop, signals, [&] { return runs_ended >= 6; },
      [&](pid_t pid, ExitStatus status) {
        watch.child_ended(pid, status);
        ++runs_ended;
      });
  unlink(file.c_str());
  REQUIRE(heard.size() == 2);
  CHECK(heard[0].find("ended with exit code 127: no script") != std::string::npos);
  CHECK(heard[1] == "preempted");
}
