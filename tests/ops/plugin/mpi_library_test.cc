#include "ops/mpi/mpi_library.h"

#include <dlfcn.h>

#include <algorithm>

#include "core/base/error.h"
#include "tests/support/built.h"
#include "tests/support/catch.h"

namespace hvd::testing {

TEST_CASE("MPI library: what was asked for, what is loaded, what fits the launcher") {
  using List = std::vector<std::string>;
  const List loaded = {"/opt/mpi/libmpi.so.12"};
  CHECK(mpi_candidates("/my/libmpi.so", loaded, MpiKind::open_mpi, "/env/lib") == List{"/my/libmpi.so"});
  CHECK(mpi_candidates("", loaded, MpiKind::open_mpi, "/env/lib") == loaded);
  const List open_mpi = mpi_candidates("", {}, MpiKind::open_mpi, "/env/lib");
  const List mpich = mpi_candidates("", {}, MpiKind::mpich, "/env/lib");
  CHECK(open_mpi.front() == "/env/lib/libmpi.so.40");
  CHECK(mpich.front() == "/env/lib/libmpich.so.12");
  const auto has = [](const List& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  // Opening the wrong one would not fail: each process would be alone in it.
  CHECK_FALSE(has(open_mpi, "libmpich.so.12"));
  CHECK_FALSE(has(open_mpi, "/env/lib/libmpich.so.12"));
  CHECK_FALSE(has(mpich, "libmpi.so.40"));
  const List any = mpi_candidates("", {}, std::nullopt, "/env/lib");
  CHECK(has(any, "/env/lib/libmpi_abi.so.1"));
  CHECK(has(any, "libmpi.so.40"));
  CHECK(has(any, "libmpich.so.12"));
  CHECK(has(any, "libmpi_abi.so.1"));
}

TEST_CASE("MPI library: its binary interface, whatever else it exports") {
  const auto kind_of = [](const char* path) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    return mpi_kind_of(library);
  };
  CHECK(kind_of(built::fake_mpi_openmpi) == MpiKind::open_mpi);
  CHECK(kind_of(built::fake_mpi_mpich) == MpiKind::mpich);
  CHECK(kind_of(built::fake_mpi_mpich5) == MpiKind::mpich);
  CHECK(kind_of(built::fake_mpi_standard) == MpiKind::standard);
}

TEST_CASE("MPI library: one that is not there, or nobody has opened, says so") {
  CHECK_THROWS_WITH(open_mpi("/nowhere/libmpi.so", Launch{}),
                    Catch::Matchers::Contains("no MPI library was found") && Catch::Matchers::Contains("HVD_MPI_LIB"));
  CHECK_THROWS_WITH(mpi_of_this_job(), Catch::Matchers::Contains("MPI has not started this job"));
}

}  // namespace hvd::testing
