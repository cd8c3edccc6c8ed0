#include "launcher/open_files.h"

#include <sys/resource.h>

#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

HostPlan plan_of(int ranks) {
  HostPlan plan;
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  return plan;
}

TEST_CASE("each rank takes the same") {
  HostPlan merged = plan_of(100);
  merged.merge_errors = true;
  HostPlan read = plan_of(100);
  for (RankPlan& rank : read.ranks) rank.reads_input = true;
  const std::size_t own = open_files_of(plan_of(100));
  CHECK(own - open_files_of(plan_of(99)) == 5);
  CHECK(own - open_files_of(merged) == 100);
  CHECK(open_files_of(read) - own == 100);
}

TEST_CASE("a limit that does not last is told with both numbers, before anything is started") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{.rlim_cur = 500, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  std::string text;
  try {
    check_open_files(plan_of(1));
    check_open_files(plan_of(1'000));
  } catch (const Internal& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(text.starts_with("1000 ranks on this host take 50"));
  CHECK(text.ends_with(", which may have 500: raise the limit (ulimit -n), or start fewer ranks here"));
}

}  // namespace
}  // namespace hvd::launcher
