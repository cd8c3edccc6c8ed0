#include "core/base/wait_policy.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace hvd {

WaitPolicy wait_policy_for(int ranks_on_host, int cpus) {
  if (ranks_on_host > cpus) return kCrowdedPolicy;
  return {.spin = std::chrono::microseconds(20), .yields = 0};
}

WaitPolicy network_wait_policy_for(int ranks_on_host, int cpus) {
  if (ranks_on_host > cpus) return kCrowdedPolicy;
  return {.spin = std::chrono::microseconds(500), .yields = 0};
}

int allowed_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace hvd
