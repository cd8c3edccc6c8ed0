#include "launcher/processes/child_process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {

namespace {

TEST_CASE("each rank takes the same") {
  const std::size_t own = open_files_of(100, 0, false);
  CHECK(own - open_files_of(99, 0, false) == 5);
  CHECK(own - open_files_of(100, 0, true) == 100);
  CHECK(open_files_of(100, 100, false) - own == 100);
}

TEST_CASE("a limit that does not last is told with both numbers, before anything is started") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{.rlim_cur = 500, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  std::string text;
  try {
    check_open_files(1, 0, false);
    check_open_files(1'000, 0, false);
  } catch (const Internal& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(text.starts_with("1000 ranks on this host take 50"));
  CHECK(text.ends_with(", which may have 500: raise the limit (ulimit -n), or start fewer ranks here"));
}

TEST_CASE("descendants are found at any depth, without the excepted subtrees") {
  const std::vector<ProcessEntry> all{{1, 0, 1},    {10, 1, 10},  {11, 10, 10}, {12, 11, 12},
                                      {13, 12, 13}, {20, 10, 20}, {21, 20, 20}, {30, 1, 30}};
  const auto pids = [&](pid_t root, const std::vector<pid_t>& except) {
    std::vector<pid_t> result;
    for (const ProcessEntry& entry : descendants(root, all, except)) result.push_back(entry.pid);
    std::sort(result.begin(), result.end());
    return result;
  };
  CHECK(pids(10, {}) == std::vector<pid_t>{11, 12, 13, 20, 21});
  CHECK(pids(10, {20}) == std::vector<pid_t>{11, 12, 13});
  CHECK(pids(13, {}).empty());
}

TEST_CASE("a list with a cycle ends") { CHECK(descendants(1, {{1, 2, 1}, {2, 1, 1}}, {}).size() <= 3); }

TEST_CASE("this process is in the list") {
  const auto all = list_processes();
  const auto self = std::find_if(all.begin(), all.end(), [](const ProcessEntry& e) { return e.pid == getpid(); });
  REQUIRE(self != all.end());
  CHECK(self->parent == getppid());
  CHECK(self->group == getpgrp());
}

}  // namespace

}  // namespace hvd::launcher
