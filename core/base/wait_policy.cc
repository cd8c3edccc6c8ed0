#include "core/base/wait_policy.h"

namespace hvd {

WaitPolicy wait_policy_for(int ranks_on_host, int cpus) {
  if (ranks_on_host > cpus) return kOversubscribedPolicy;
  return {.spin = std::chrono::microseconds(20), .yields = 0};
}

WaitPolicy network_wait_policy_for(int ranks_on_host, int cpus) {
  if (ranks_on_host > cpus) return kOversubscribedPolicy;
  return {.spin = std::chrono::microseconds(500), .yields = 0};
}

}  // namespace hvd
