#include "launcher/processes/child_process.h"

#include <sys/resource.h>

#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("each rank takes the same") {
  const std::size_t own = open_files_of({.ranks = 100});
  CHECK(own - open_files_of({.ranks = 99}) == 5);
  CHECK(own - open_files_of({.ranks = 100, .merge_errors = true}) == 100);
  CHECK(open_files_of({.ranks = 100, .readers = 100}) - own == 100);
}

TEST_CASE("a limit that does not last is told with both numbers, before anything is started") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{.rlim_cur = 500, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  std::string text;
  try {
    check_open_files({.ranks = 1});
    check_open_files({.ranks = 1'000});
  } catch (const Internal& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(text.starts_with("1000 ranks on this host take 50"));
  CHECK(text.ends_with(", which may have 500: raise the limit (ulimit -n), or start fewer ranks here"));
}

}  // namespace
}  // namespace hvd::launcher
