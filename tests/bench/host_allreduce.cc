// How long an allreduce through shared memory takes: ranks are processes, results are checked, inputs are rewritten.
//
//   bench_host_allreduce                      the table
//   bench_host_allreduce RANKS BYTES TENSORS  one line of it
//   --setsid                                  each rank in a session of its own, as remote launchers start them
//   --pin                                     rank r on CPU r
//   --chunk BYTES                             other than the default
//
// Prints the shortest and the median time per call of rank 0 in microseconds. Times depend on what else runs.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "ops/host/host_group.h"

namespace {

using namespace hvd;

struct Case {
  int ranks;
  std::size_t bytes;
  std::size_t tensors;
};

constexpr Case kTable[] = {{2, 8, 1},        {2, 4 << 10, 1},    {2, 64 << 10, 1}, {2, 1 << 20, 1},
                           {2, 64 << 20, 1}, {2, 64 << 20, 100}, {4, 8, 1},        {4, 64 << 10, 1},
                           {4, 1 << 20, 1},  {4, 16 << 20, 1},   {8, 8, 1},        {8, 1 << 20, 1}};

struct Options {
  bool new_sessions = false;
  bool pin = false;
  bool arena = false;
  WindowOptions window;
};

// Whole numbers, exact in float32 whatever the order of the sum.
float value(int rank, int round, std::size_t index) {
  return static_cast<float>((static_cast<std::size_t>(rank * 7 + round) + index) % 1000);
}

// One rank: what it sends, where it receives, and the clock.
class Rank {
 public:
  Rank(const Case& test, int rank, HostGroup& group, TensorArena* arena) : case_(test), rank_(rank), group_(group) {
    const std::size_t elements = test.bytes / sizeof(float) / test.tensors;
    for (std::size_t t = 0; t < test.tensors; ++t) {
      if (arena != nullptr) {
        inputs_.emplace_back(static_cast<float*>(arena->allocate(elements * 4)), elements);
        outputs_.push_back(inputs_.back());
      } else {
        inputs_.emplace_back(new float[elements], elements);
        outputs_.emplace_back(new float[elements], elements);
      }
      pieces_.push_back({inputs_.back().data(), outputs_.back().data(), static_cast<std::int64_t>(elements)});
    }
  }

  std::vector<double> measure() {
    const int calls = case_.bytes <= (64u << 10) && inputs_[0].data() != outputs_[0].data() ? 200 : 1;
    const int rounds = case_.bytes <= (1u << 20) ? 60 : 15;
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      rewrite(round);
      group_.barrier();
      const TimePoint start = Clock::now();
      for (int call = 0; call < calls; ++call) group_.allreduce(pieces_, {.dtype = DType::float32});
      times.push_back(seconds(Clock::now() - start) / calls * 1e6);
      check(round);
    }
    std::sort(times.begin(), times.end());
    return times;
  }

 private:
  void rewrite(int round) {
    for (auto& input : inputs_) {
      for (std::size_t i = 0; i < input.size(); ++i) input[i] = value(rank_, round, i);
    }
    if (inputs_[0].data() != outputs_[0].data()) {
      for (auto& output : outputs_) std::fill(output.begin(), output.end(), -1.0f);
    }
  }

  void check(int round) const {
    for (const auto& output : outputs_) {
      for (std::size_t i = 0; i < output.size(); ++i) {
        float expected = 0;
        for (int rank = 0; rank < case_.ranks; ++rank) expected += value(rank, round, i);
        if (output[i] != expected) throw Internal("a wrong sum");
      }
    }
  }

  const Case& case_;
  const int rank_;
  HostGroup& group_;
  std::vector<std::span<float>> inputs_, outputs_;
  std::vector<Piece> pieces_;
};

constexpr std::size_t kArena = 1ul << 35;

int run_rank(const Case& test, int rank, const Options& options, std::shared_ptr<SharedMemory> memory) {
  try {
    if (options.new_sessions) setsid();
    if (options.pin) {
      cpu_set_t cpu;
      CPU_ZERO(&cpu);
      CPU_SET(rank % allowed_cpus(), &cpu);
      sched_setaffinity(0, sizeof cpu, &cpu);
    }
    TensorArena arena(memory, memory->size() - test.ranks * kArena, kArena, rank);
    HostGroup group({memory->data(), memory->size() - test.ranks * kArena}, &arena, rank, test.ranks, options.window,
                    nullptr, [](int r) { return "rank " + std::to_string(r); });
    const std::vector<double> times = Rank(test, rank, group, options.arena ? &arena : nullptr).measure();
    if (rank == 0) {
      std::printf("%2d ranks %10zu bytes in %3zu tensors   min %10.2f us   median %10.2f us\n", test.ranks, test.bytes,
                  test.tensors, times.front(), times[times.size() / 2]);
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

bool run_case(const Case& test, const Options& options) {
  const std::size_t bytes = HostGroup::region_bytes(test.ranks, options.window.chunk_bytes);
  auto memory =
      std::make_shared<SharedMemory>(SharedMemory::create((bytes + 4095) / 4096 * 4096 + test.ranks * kArena, "bench"));
  for (int rank = 0; rank < test.ranks; ++rank) {
    if (fork() == 0) _exit(run_rank(test, rank, options, memory));
  }
  bool well = true;
  for (int rank = 0; rank < test.ranks; ++rank) {
    int status = 0;
    well = wait(&status) > 0 && status == 0 && well;
  }
  return well;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::vector<std::size_t> numbers;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--setsid") {
      options.new_sessions = true;
    } else if (argument == "--pin") {
      options.pin = true;
    } else if (argument == "--arena") {
      options.arena = true;
    } else if (argument == "--chunk" && i + 1 < argc) {
      options.window.chunk_bytes = std::strtoull(argv[++i], nullptr, 10);
    } else {
      numbers.push_back(std::strtoull(argv[i], nullptr, 10));
    }
  }
  bool well = true;
  if (numbers.size() == 3) {
    well = run_case({static_cast<int>(numbers[0]), numbers[1], std::max<std::size_t>(1, numbers[2])}, options);
  } else {
    for (const Case& test : kTable) well = run_case(test, options) && well;
  }
  return well ? EXIT_SUCCESS : EXIT_FAILURE;
}
