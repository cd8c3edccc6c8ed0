#include "core/base/error.h"

#include <sys/resource.h>

#include <cerrno>
#include <new>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

template <typename Thrown>
Status status_of(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return current_exception_status();
  }
}

}  // namespace

TEST_CASE("every exception becomes a status") {
  CHECK(status_of(Mismatch("why")) == Status(StatusCode::mismatch, "why"));
  CHECK(status_of(Error(StatusCode::shut_down, "over")) == Status(StatusCode::shut_down, "over"));
  CHECK(status_of(std::runtime_error("foreign")) == Status(StatusCode::internal, "foreign"));
  CHECK(status_of(std::bad_alloc()).code() == StatusCode::internal);
  CHECK(status_of(42).code() == StatusCode::internal);
}

TEST_CASE("a status becomes an exception and comes back the same") {
  const Status status(StatusCode::peer_lost, "rank 1 on host-a");
  CHECK(status_of(Error(status)) == status);
  CHECK_THROWS_AS(throw PeerLost("x"), Error);
}

TEST_CASE("status codes have names of their own") {
  for (int code = 0; code <= static_cast<int>(StatusCode::internal); ++code) {
    CHECK(std::string(status_code_name(static_cast<StatusCode>(code))) != "unknown");
  }
}

namespace hvd {

TEST_CASE("a limit of this process is named with its number") {
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  CHECK(error_text(EMFILE).ends_with(" (this process may have " + std::to_string(files.rlim_cur) + ": ulimit -n)"));
  CHECK(error_text(ENOENT) == "No such file or directory");
}

}  // namespace hvd
