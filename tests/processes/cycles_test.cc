// init and shutdown a thousand times in a pair of processes: no descriptor, thread, memory or mapping is left behind,
// and it does not get slower.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/fork_ranks.h"
#include "tests/support/process_entries.h"
#include "tests/support/run_ranks.h"
#include "tests/support/timeouts.h"

namespace hvd::testing {

namespace {

struct Footprint {
  int descriptors = 0, threads = 0;
  std::ptrdiff_t mappings = 0;
  long address_kib = 0, resident_kib = 0;
};

Footprint footprint(int threads) {
  std::ifstream maps("/proc/self/maps");
  const auto mappings = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  const long page_kib = sysconf(_SC_PAGESIZE) / 1024;
  return {count_descriptors(), count_threads(threads), mappings, total * page_kib, resident * page_kib};
}

// What has become more: an exit code. 0: nothing.
int growth(const Footprint& before, const Footprint& now) {
  int code = 0;
  if (now.descriptors != before.descriptors) code = 21;
  if (now.threads != before.threads) code = 22;
#ifndef HVD_SANITIZED
  if (now.resident_kib > before.resident_kib + 1024) code = 23;
  if (now.mappings > before.mappings) code = 25;
  if (now.address_kib > before.address_kib + 1024) code = 26;
#endif
  for (const auto& [descriptors, threads, mappings, address_kib, resident_kib] : {before, now}) {
    if (code == 0) continue;
    std::fprintf(stderr, "%d descriptors, %d threads, %td mappings, %ld KiB of addresses, %ld KiB resident\n",
                 descriptors, threads, mappings, address_kib, resident_kib);
  }
  return code;
}

// The allocator gives threads that meet in it an arena each, of 64 MiB of addresses: now here, now there.
void leave_arenas_out() { mallopt(M_ARENA_MAX, 1); }

bool use_once(Runtime& runtime) {
  float value = 1;
  CallArguments call{.name = "one"};
  call.inputs = call.outputs = {{.data = &value, .shape = {1}}};
  perform(runtime, call);
  perform(runtime, {.collective = Collective::barrier});
  return value == 2;
}

int cycle_many(const ForkedRanks::Start& start, int cycles) {
  leave_arenas_out();
  std::vector<double> ms;
  Footprint warm;
  for (int i = 0; i < cycles; ++i) {
    const TimePoint begin = Clock::now();
    if (!use_once(*start())) return 20;
    ms.push_back(seconds(Clock::now() - begin) * 1e3);
    if (i == cycles / 10) warm = footprint(1);  // caches are warm
  }
  if (const int code = growth(warm, footprint(1)); code != 0) return code;
  const auto middle = static_cast<std::ptrdiff_t>(ms.size() / 2);
  const double first_half = *std::min_element(ms.begin(), ms.begin() + middle);
  const double second_half = *std::min_element(ms.begin() + middle, ms.end());
  std::nth_element(ms.begin(), ms.begin() + middle, ms.end());
  const double median = ms[static_cast<std::size_t>(middle)];
  std::fprintf(stderr, "init, one allreduce, shutdown: median %.2f ms\n", median);
  if (exact_times() && (median > 10 || second_half > 2 * first_half)) return 24;
  return 0;
}

int cycle_beside_a_thread(const ForkedRanks::Start& start, int cycles) {
  leave_arenas_out();
  std::promise<void> over;
  std::thread other;  // calls hvd in one cycle, and goes on until the end
  bool used = true;
  Footprint warm;
  for (int i = 0; i < cycles; ++i) {
    if (i == 10) warm = footprint(2);
    const auto runtime = start();
    if (i == 2) {
      std::promise<bool> called;
      other = std::thread([&, until = over.get_future()] {
        called.set_value(use_once(*runtime));
        until.wait();
      });
      used = called.get_future().get() && used;
    } else {
      used = use_once(*runtime) && used;
    }
  }
  const Footprint last = footprint(2);
  over.set_value();
  other.join();
  return used ? growth(warm, last) : 20;
}

}  // namespace

TEST_CASE("a hundred cycles, of which another thread saw one, leave nothing behind") {
  ForkedRanks ranks(2, {}, [&](int, const ForkedRanks::Start& start) { return cycle_beside_a_thread(start, 100); });
  CHECK(ranks.wait(0) == 0);
  CHECK(ranks.wait(1) == 0);
}

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
