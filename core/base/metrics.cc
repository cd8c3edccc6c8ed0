#include "core/base/metrics.h"

#include <algorithm>

namespace hvd {

namespace {

double count_of(const Counter& counter) { return static_cast<double>(counter.value()); }

double seconds_of(const Counter& counter) { return seconds(Duration(static_cast<Duration::rep>(counter.value()))); }

}  // namespace

std::vector<NamedMetric> list(const Metrics& metrics) {
  const double direct = count_of(metrics.direct_calls);
  const double exposed = seconds_of(metrics.exposed_time), communication = seconds_of(metrics.communication_time);
  return {{"control_messages", count_of(metrics.control_messages)},
          {"control_bytes", count_of(metrics.control_bytes)},
          {"rounds", count_of(metrics.rounds)},
          {"cache_hits", count_of(metrics.cache_hits)},
          {"cache_misses", count_of(metrics.cache_misses)},
          {"lock_state", count_of(metrics.lock_state)},
          {"locked_steps", count_of(metrics.locked_steps)},
          {"locked_buckets", count_of(metrics.locked_buckets) + direct},
          {"breaks_new_operation", count_of(metrics.breaks[1])},
          {"breaks_order", count_of(metrics.breaks[2])},
          {"breaks_late", count_of(metrics.breaks[3])},
          {"breaks_leaving", count_of(metrics.breaks[4])},
          {"breaks_other_rank", count_of(metrics.breaks[5])},
          {"operations", count_of(metrics.operations) + direct},
          {"buckets", count_of(metrics.buckets) + direct},
          {"bytes", count_of(metrics.bytes) + count_of(metrics.direct_bytes)},
          {"collective_seconds", seconds_of(metrics.collective_time)},
          {"collective_cpu_seconds", seconds_of(metrics.collective_cpu)},
          {"communication_seconds", communication},
          {"exposed_seconds", exposed},
          {"overlap", communication > 0 ? std::max(0.0, 1 - exposed / communication) : 1.0}};
}

}  // namespace hvd
