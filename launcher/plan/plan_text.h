// Formats the plan that --dry-run prints: what would be started, where and how. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

struct PlannedRank {
  int program = 0;  // index in PlannedJob::programs
  RankPlace place;
  std::vector<int> cpus{};    // empty: not bound
  std::string gpus{};         // CUDA_VISIBLE_DEVICES; empty: unchanged
  Environment environment{};  // the variables that hvdrun sets
};

struct PlannedHost {
  std::string name;
  std::string start_command{};  // empty: this machine
  int slots = 1;
  std::vector<PlannedRank> ranks{};
};

struct PlannedJob {
  std::string hosts_from;                          // "-H", "Slurm's allocation (SLURM_JOB_NODELIST)"; empty: not named
  std::vector<std::vector<std::string>> programs;  // the command of each
  std::vector<PlannedHost> hosts;
};

// Leaves out the job key.
std::string plan_text(const PlannedJob& job);

}  // namespace hvd::launcher
