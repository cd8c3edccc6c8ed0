#include "ops/mpi/mpi_library.h"

#include <algorithm>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::testing {

TEST_CASE("MPI library: what was asked for, what is loaded, what fits the launcher") {
  using List = std::vector<std::string>;
  const List loaded = {"/opt/mpi/libmpi.so.12"};
  CHECK(mpi_candidates("/my/libmpi.so", loaded, MpiKind::open_mpi) == List{"/my/libmpi.so"});
  CHECK(mpi_candidates("", loaded, MpiKind::open_mpi) == loaded);
  CHECK(mpi_candidates("", {}, MpiKind::open_mpi).front() == "libmpi.so.40");
  CHECK(mpi_candidates("", {}, MpiKind::mpich).front() == "libmpich.so.12");
  const auto has = [](const List& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  // Opening the wrong one would not fail: each process would be alone in it.
  CHECK_FALSE(has(mpi_candidates("", {}, MpiKind::open_mpi), "libmpich.so.12"));
  CHECK_FALSE(has(mpi_candidates("", {}, MpiKind::mpich), "libmpi.so.40"));
  const List any = mpi_candidates("", {}, std::nullopt);
  CHECK(has(any, "libmpi.so.40"));
  CHECK(has(any, "libmpich.so.12"));
  CHECK(has(any, "libmpi_abi.so.1"));
}

TEST_CASE("MPI library: one that is not there, or nobody has opened, says so") {
  CHECK_THROWS_WITH(open_mpi("/nowhere/libmpi.so", Launch{}),
                    Catch::Matchers::Contains("no MPI library was found") && Catch::Matchers::Contains("HVD_MPI_LIB"));
  CHECK_THROWS_WITH(mpi_of_this_job(), Catch::Matchers::Contains("MPI has not started this job"));
}

}  // namespace hvd::testing
