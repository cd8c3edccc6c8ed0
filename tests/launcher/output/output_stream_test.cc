#include "launcher/output/output_stream.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("a rank's folder is padded to the width of the largest rank") {
  CHECK(output_path("d", 0, 1, "stdout") == "d/rank.0/stdout");
  CHECK(output_path("d", 9, 10, "stdout") == "d/rank.9/stdout");
  CHECK(output_path("d", 9, 11, "stderr") == "d/rank.09/stderr");
  CHECK(output_path("d", 7, 1001, "stderr") == "d/rank.0007/stderr");
}

TEST_CASE("a file that cannot be written is named") {
  try {
    open_output_file("/dev/null/rank.0/stdout");
    FAIL("no error");
  } catch (const InvalidArgument& error) {
    CHECK(std::string(error.what()).find("/dev/null/rank.0") != std::string::npos);
  }
}

}  // namespace
}  // namespace hvd::launcher
