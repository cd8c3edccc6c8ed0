#include "core/bootstrap/launch_environment.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"

namespace hvd {
namespace {

TEST_CASE("a process with the variables of a rank is that rank, or its child") {
  struct Row {
    const char* what;
    Launcher launcher;
    Environment one, other;
    bool is_same;
  };
  const Row rows[] = {
      {"another rank", Launcher::hvdrun, {{"HVD_RANK", "0"}}, {{"HVD_RANK", "1"}}, false},
      {"another job of hvdrun's",
       Launcher::hvdrun,
       {{"HVD_RANK", "0"}, {"HVD_STORE", "h:1"}},
       {{"HVD_RANK", "0"}, {"HVD_STORE", "h:2"}},
       false},
      {"the same of hvdrun's",
       Launcher::hvdrun,
       {{"HVD_RANK", "0"}, {"HVD_STORE", "h:1"}, {"A", "1"}},
       {{"HVD_RANK", "0"}, {"HVD_STORE", "h:1"}, {"A", "2"}},
       true},
      {"a launcher without variables", Launcher::open_mpi, {}, {}, false},
      {"the launcher itself", Launcher::open_mpi, {{"OMPI_COMM_WORLD_RANK", "0"}}, {}, false},
      {"mpirun that a rank has started",
       Launcher::open_mpi,
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "2"}},
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "1"}},
       false},
      {"torch's variables, which a rank of mpirun's has set for itself",
       Launcher::open_mpi,
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"RANK", "0"}, {"MASTER_PORT", "5"}},
       {{"OMPI_COMM_WORLD_RANK", "0"}},
       true},
      {"a step of srun's inside another",
       Launcher::slurm,
       {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "1"}},
       {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}},
       false},
      {"a restart by torchrun",
       Launcher::torchrun,
       {{"RANK", "0"}, {"TORCHELASTIC_RESTART_COUNT", "1"}},
       {{"RANK", "0"}, {"TORCHELASTIC_RESTART_COUNT", "0"}},
       false},
      {"nobody's", Launcher::none, {{"RANK", "0"}}, {{"RANK", "0"}}, false},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    CHECK(is_same_rank(row.launcher, row.one, row.other) == row.is_same);
  }
}

TEST_CASE("a parent is one by whom this process was started") {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) _exit(is_started_by(parent) && !is_started_by(getpid()) ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace hvd
