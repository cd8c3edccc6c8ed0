// What --dry-run prints: what would be started, where and how. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

struct PlannedRank {
  int program = 0;  // its number in JobText.programs
  RankPlace place;
  std::vector<int> cpus{};    // empty: it is not bound
  std::string gpus{};         // CUDA_VISIBLE_DEVICES; empty: left alone
  Environment environment{};  // what hvdrun sets
};

struct PlannedHost {
  std::string name;
  std::string start_command{};  // empty: it is this machine
  int slots = 1;
  std::vector<PlannedRank> ranks{};
};

struct PlannedJob {
  std::string hosts_from;                          // "-H", "Slurm's allocation (SLURM_JOB_NODELIST)"; empty: nobody
  std::vector<std::vector<std::string>> programs;  // their commands
  std::vector<PlannedHost> hosts;
};

// Lines, with the key of the job left out.
std::string plan_text(const PlannedJob& job);

}  // namespace hvd::launcher
