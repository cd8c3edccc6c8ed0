#include "core/base/metrics.h"

#include <set>
#include <string>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

double value_of(const Metrics& metrics, const std::string& name) {
  for (const NamedMetric& metric : list(metrics)) {
    if (metric.name == name) return metric.value;
  }
  throw std::runtime_error("there is no metric " + name);
}

}  // namespace

TEST_CASE("metrics: every number has a name of its own, and times are in seconds") {
  Metrics metrics;
  metrics.cache_hits.add(3);
  metrics.cache_hits.add();
  metrics.collective_time.add(Duration(1500ms));
  CHECK(value_of(metrics, "cache_hits") == 4);
  CHECK(value_of(metrics, "collective_seconds") == 1.5);
  std::set<std::string> names;
  for (const NamedMetric& metric : list(metrics)) names.insert(metric.name);
  CHECK(names.size() == list(metrics).size());
}

TEST_CASE("metrics: overlap is the share of communication that nobody waited for") {
  Metrics metrics;
  CHECK(value_of(metrics, "overlap") == 1);
  metrics.communication_time.add(Duration(4s));
  CHECK(value_of(metrics, "overlap") == 1);
  metrics.exposed_time.add(Duration(1s));
  CHECK(value_of(metrics, "overlap") == 0.75);
  metrics.exposed_time.add(Duration(9s));  // several threads
  CHECK(value_of(metrics, "overlap") == 0);
}
