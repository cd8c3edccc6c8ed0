// NCCL behind its table of functions, with the fake one in its place.
#include "ops/gpu/nccl_library.h"

#include "tests/support/catch.h"
#include "tests/support/failure.h"
#include "tests/support/fake_gpu.h"

namespace hvd::nccl {

namespace {

using testing::failure;
using testing::FakeGpu;
using testing::has;

std::string fake() { return FakeGpu::environment().at("HVD_NCCL_LIB"); }

}  // namespace

TEST_CASE("an NCCL that is not there, or is something else, is unsupported with the reason") {
  CHECK(has(failure([] { Library("/no/such/libnccl.so"); }), "unsupported: there is no NCCL: /no/such"));
  CHECK(has(failure([] { Library("libm.so.6"); }), "unsupported: libm.so.6 has no ncclGetVersion"));
}

TEST_CASE("versions are written as NCCL's own pages do") {
  CHECK(version_text(22703) == "2.27.3");
  CHECK(version_text(21800) == "2.18.0");
  CHECK(version_text(2804) == "2.8.4");
}

TEST_CASE("NCCL's failures are named, and have a kind") {
  const FakeGpu gpu;
  const Library library(fake());
  CHECK(library.version() == 22703);
  CHECK(has(library.describe(), "NCCL 2.27.3, "));
  CHECK(failure([&] { library.check(Result::success, "x"); }).empty());
  CHECK(failure([&] { library.check(Result::in_progress, "x"); }).empty());
  CHECK(has(failure([&] { library.check(Result::system_error, "ncclCommInitRankConfig"); }),
            "aborted: NCCL: ncclCommInitRankConfig: "));
  CHECK(has(failure([&] { library.check(Result::remote_error, "x"); }), "peer lost: "));
  CHECK(has(failure([&] { library.check(Result::invalid_usage, "x"); }), "internal: "));
}

}  // namespace hvd::nccl
