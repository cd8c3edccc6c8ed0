#include "launcher/plan/host_environment.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("what tells of a place, a login or a process stays where it is") {
  for (const char* name : {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TERM", "LANG", "OMP_NUM_THREADS",
                           "HVD_LOG_LEVEL", "NCCL_DEBUG", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "XDG_DATA_DIRS",
                           "HOSTS", "OMPI_MCA_btl", "_CONDA_EXE", "CUDA_VISIBLE_DEVICES"}) {
    CAPTURE(name);
    CHECK(travels(name));
  }
  for (const char* name :
       {"HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "SSH_AUTH_SOCK", "SSH_CONNECTION", "XDG_RUNTIME_DIR",
        "XDG_SESSION_ID", "DISPLAY", "BASH_FUNC_module%%", "TMPDIR", "HOME", "SLURM_NODEID", "SLURM_STEP_ID",
        "SLURMD_NODENAME", "PMIX_RANK", "HVD_HOST_ID", "HVD_ADDRESS"}) {
    CAPTURE(name);
    CHECK_FALSE(travels(name));
  }
}

TEST_CASE("ranks on another host have hvdrun's environment, and that host's own place") {
  const Environment drivers{{"PATH", "/venv/bin:/bin"},   {"HOME", "/home/me"},  {"PWD", "/work"},
                            {"ONLY_HERE", "1"},           {"SSH_TTY", "/dev/x"}, {"CUDA_VISIBLE_DEVICES", "0,1"},
                            {"ROCR_VISIBLE_DEVICES", "0"}};
  const Environment agents{{"PATH", "/bin"}, {"HOME", "/root"}, {"ONLY_THERE", "1"}, {"CUDA_VISIBLE_DEVICES", "2,3"}};
  CHECK(environment_on_host(drivers, agents) == Environment{{"PATH", "/venv/bin:/bin"},
                                                            {"HOME", "/root"},
                                                            {"ONLY_HERE", "1"},
                                                            {"ONLY_THERE", "1"},
                                                            {"CUDA_VISIBLE_DEVICES", "2,3"},
                                                            {"ROCR_VISIBLE_DEVICES", "0"}});
}

}  // namespace
}  // namespace hvd::launcher
