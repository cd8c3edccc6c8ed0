"""The installed CMake package, as other projects use it."""

import pathlib

ALL_SUMS_OF_FOUR_RANKS = [
    f"{name}: 6" for name in ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
]

C_PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(hvd 0.1 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE hvd::hvd)
"""

C_PROGRAM = """
#include <hvd.h>
#include <stdio.h>

int main(void) {
  float values[2] = {1, 2};
  const int64_t shape[1] = {2};
  hvd_tensor tensor = {values, shape, 1, HVD_FLOAT32, HVD_CPU, 0};
  hvd_call call = HVD_CALL_INIT;
  hvd_work* work = NULL;
  call.count = 1;
  call.inputs = call.outputs = &tensor;
  if (hvd_init() != HVD_OK || hvd_submit(&call, &work) != HVD_OK || hvd_work_wait(work, -1) != HVD_OK) {
    puts(hvd_last_error());
    return 1;
  }
  hvd_work_free(work);
  printf("%g %g\\n", values[0], values[1]);
  return hvd_shutdown() == HVD_OK ? 0 : 1;
}
"""


def test_the_cpp_example_builds_and_runs_with_a_moved_installation(installed, root, tmp_path, succeed):
    succeed("cmake", "-S", root / "examples/cpp", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={installed}")
    succeed("cmake", "--build", tmp_path)
    output = succeed(pathlib.Path(installed, "bin/hvdrun"), "-np", 4, tmp_path / "allreduce")
    assert output.splitlines() == ALL_SUMS_OF_FOUR_RANKS


def test_a_c_project_needs_no_cpp_compiler(installed, tmp_path, succeed):
    (tmp_path / "CMakeLists.txt").write_text(C_PROJECT)
    (tmp_path / "user.c").write_text(C_PROGRAM)
    succeed("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}")
    succeed("cmake", "--build", tmp_path / "build")
    assert succeed(pathlib.Path(installed, "bin/hvdrun"), "-np", 1, tmp_path / "build/user") == "1 2\n"
    assert succeed(pathlib.Path(installed, "bin/hvdrun"), "-np", 2, tmp_path / "build/user") == "2 4\n" * 2


def test_the_benchmark_runs_with_a_moved_installation(installed, tmp_path, succeed):
    output = succeed(pathlib.Path(installed, "bin/hvd-bench"), "-np", 2, "--sizes", 8, "--seconds", 0, cwd=tmp_path)
    assert "2 ranks on 1 host" in output


def test_the_package_holds_exactly_what_users_need(installed):
    files = {path.relative_to(installed).as_posix() for path in pathlib.Path(installed).rglob("*") if not path.is_dir()}
    headers = {
        "hvd.h",
        "hvd.hpp",
        "hvd_plugin.h",
        "hvd_ps.h",
        *(f"hvd/{name}.hpp" for name in ("allocator", "element", "error", "future", "prepared", "ps", "tensor")),
        "hvd/work.hpp",
    }
    configs = {"hvdConfig.cmake", "hvdConfigVersion.cmake", "hvdTargets.cmake", "hvdTargets-release.cmake"}
    assert files == {
        "bin/hvd-bench",
        "bin/hvd-simulate",
        "bin/hvdrun",
        "lib/libhvd.so",
        "lib/libhvd.so.0",
        "lib/hvd/libhvd_mpi_mpich.so",
        "lib/hvd/libhvd_mpi_openmpi.so",
        "lib/hvd/libhvd_mpi_standard.so",
        *(f"include/{name}" for name in headers),
        *(f"lib/cmake/hvd/{name}" for name in configs),
    }
