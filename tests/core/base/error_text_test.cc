#include "core/base/error_text.h"

#include <sys/resource.h>

#include <cerrno>

#include "tests/support/catch.h"

namespace hvd {

TEST_CASE("a limit of this process is named with its number") {
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  CHECK(error_text(EMFILE).ends_with(" (this process may have " + std::to_string(files.rlim_cur) + ": ulimit -n)"));
  CHECK(error_text(ENOENT) == "No such file or directory");
}

}  // namespace hvd
