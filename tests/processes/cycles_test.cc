// init and shutdown a thousand times in a pair of processes: no descriptor, thread or memory is left behind, and it
// does not get slower.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/fork_ranks.h"
#include "tests/support/patience.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

int entries(const char* directory) {
  int count = 0;
  DIR* dir = opendir(directory);
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

long resident_kib() {
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

int cycle_many(const ForkedRanks::Start& start, int cycles) {
  std::vector<double> ms;
  int descriptors = 0, threads = 0;
  [[maybe_unused]] long kib = 0;
  for (int i = 0; i < cycles; ++i) {
    const TimePoint begin = Clock::now();
    {
      const auto runtime = start();
      float value = 1;
      Call call{.name = "one"};
      call.inputs = call.outputs = {{.data = &value, .shape = {1}}};
      perform(*runtime, call);
      if (value != 2) return 20;
      perform(*runtime, {.collective = Collective::barrier});
    }
    ms.push_back(seconds(Clock::now() - begin) * 1e3);
    if (i == cycles / 10) {  // caches are warm
      descriptors = entries("/proc/self/fd");
      threads = entries("/proc/self/task");
      kib = resident_kib();
    }
  }
  if (entries("/proc/self/fd") != descriptors) return 21;
  if (entries("/proc/self/task") != threads) return 22;
#ifndef HVD_SANITIZED
  if (resident_kib() > kib + 1024) return 23;
#endif
  const auto middle = static_cast<std::ptrdiff_t>(ms.size() / 2);
  const double first_half = *std::min_element(ms.begin(), ms.begin() + middle);
  const double second_half = *std::min_element(ms.begin() + middle, ms.end());
  std::nth_element(ms.begin(), ms.begin() + middle, ms.end());
  const double median = ms[static_cast<std::size_t>(middle)];
  std::fprintf(stderr, "init, one allreduce, shutdown: median %.2f ms\n", median);
  if (exact_times() && (median > 10 || second_half > 2 * first_half)) return 24;
  return 0;
}

}  // namespace

TEST_CASE("a thousand init and shutdown cycles neither leak nor slow down", "[timed]") {
#ifdef HVD_SANITIZED
  const int cycles = 100;
#else
  const int cycles = 1000;
#endif
  ForkedRanks ranks(2, {}, [&](int, const ForkedRanks::Start& start) { return cycle_many(start, cycles); });
  CHECK(ranks.wait(0) == 0);
  CHECK(ranks.wait(1) == 0);
}

}  // namespace hvd::testing
