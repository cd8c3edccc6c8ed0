#include "core/base/metrics.h"

#include <algorithm>

namespace hvd {

namespace {

double count_of(const Counter& counter) { return static_cast<double>(counter.value()); }

double seconds_of(const Counter& counter) { return seconds(Duration(static_cast<Duration::rep>(counter.value()))); }

void list_worker(const Metrics& metrics, std::vector<NamedMetric>& into) {
  if (metrics.worker.servers.value() == 0) return;
  into.push_back({"ps_pushes", count_of(metrics.worker.pushes)});
  into.push_back({"ps_pulls", count_of(metrics.worker.pulls)});
  into.push_back({"ps_rows", count_of(metrics.worker.rows)});
  into.push_back({"ps_wait_seconds", seconds_of(metrics.worker.wait_time)});
}

void list_shards(const Metrics& metrics, std::vector<NamedMetric>& into) {
  const auto has_shard = [](const ShardMetrics& shard) { return shard.number.value() != 0; };
  if (std::ranges::none_of(metrics.shards, has_shard)) return;
  const auto sum = [&](Counter ShardMetrics::*counter) {
    double all = 0;
    for (const ShardMetrics& shard : metrics.shards) all += has_shard(shard) ? count_of(shard.*counter) : 0;
    return all;
  };
  const auto highest = [&](Counter ShardMetrics::*counter) {
    double most = 0;
    for (const ShardMetrics& shard : metrics.shards)
      most = std::max(most, has_shard(shard) ? count_of(shard.*counter) : 0);
    return most;
  };
  into.push_back({"shard_pushes", sum(&ShardMetrics::pushes)});
  into.push_back({"shard_pulls", sum(&ShardMetrics::pulls)});
  into.push_back({"shard_rows", sum(&ShardMetrics::rows)});
  into.push_back({"shard_bytes", sum(&ShardMetrics::bytes)});
  into.push_back({"shard_queue_bytes", sum(&ShardMetrics::queue)});
  into.push_back({"shard_waiting", sum(&ShardMetrics::waiting)});
  into.push_back({"shard_staleness_median", highest(&ShardMetrics::staleness_median)});
  into.push_back({"shard_staleness_worst", highest(&ShardMetrics::staleness_worst)});
}

}  // namespace

std::vector<NamedMetric> list(const Metrics& metrics) {
  const double direct = count_of(metrics.direct_calls);
  const double exposed = seconds_of(metrics.exposed_time), communication = seconds_of(metrics.communication_time);
  std::vector<NamedMetric> all{{"control_messages", count_of(metrics.control_messages)},
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
  list_worker(metrics, all);
  list_shards(metrics, all);
  return all;
}

}  // namespace hvd
