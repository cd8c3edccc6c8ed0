// A random program, and a trace of what the runtime made of it: to compare one version of hvd with another.
//
//   hvdrun -np N random_program --seed S [--steps K] [--trace FOLDER]
//
// Every rank derives the same program of about K operations from the seed, and writes what came of each into
// FOLDER/RANK, or to its standard output (trace.h). The program uses hvd.h and hvd.hpp alone, so that it compiles
// against any version that has them. Two runs of one seed with one version have the same traces; so have runs with and
// without schedule locks, but for the lines "decisions". Phases whose operations overlap come last: what the runtime
// decides there depends on time, and what it decides later depends on that.
//
// Exit code: 0, all outcomes were the expected ones; 3, a failure that the program cannot go on after; 4, others.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#include "tests/trace/phase.h"

namespace {

using namespace hvd::trace;

constexpr int kFailed = 3;
constexpr int kUnexpected = 4;

struct Options {
  std::uint64_t seed = 0;
  int steps = 200;
  std::string folder{};
};

struct Kind {
  const char* name;
  void (*perform)(Phase&);
  int least, most;  // operations
};

constexpr Kind kDeciding[] = {{"repeat", repeat_steps, 20, 120},
                              {"repeat", repeat_steps, 20, 120},
                              {"mix", mix_operations, 5, 20},
                              {"errors", make_errors, 8, 30},
                              {"join", join_early, 4, 16}};
constexpr Kind kOverlapping[] = {{"repeat", repeat_steps, 20, 160}};

class Program {
 public:
  Program(const Options& options, Trace& trace) : options_(options), trace_(trace), random_(options.seed) {
    const hvd_topology job = hvd::topology();
    everyone_ = {.ranks = hvd::ranks_of(HVD_GLOBAL_PROCESS_SET), .position = job.rank};
  }

  void run() {
    while (performed_ < options_.steps * 2 / 3) perform(random_.pick(kDeciding), false);
    while (performed_ < options_.steps) perform(random_.pick(kOverlapping), true);
  }

 private:
  void perform(const Kind& kind, bool overlaps) {
    const bool in_sets = random_.one_in(3);
    const int length = random_.between(kind.least, kind.most);
    const std::string number = std::to_string(phases_++);
    trace_.begin_phase(number + " " + kind.name + (in_sets ? " in sets" : "") + (overlaps ? " overlapping" : ""),
                       !overlaps);
    Phase phase{trace_, everyone_, everyone_.position, Random(random_.next()), "p" + number, length, overlaps};
    in_sets ? use_sets(phase, kind.perform) : kind.perform(phase);
    // Nothing is locked after an operation that is new: what other ranks do next does not count here.
    hvd::barrier({.name = "end of p" + number});
    trace_.end_phase();
    performed_ += length;
  }

  const Options options_;
  Trace& trace_;
  Random random_;
  Set everyone_;
  int phases_ = 0;
  int performed_ = 0;
};

Options read(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seed") == 0) options.seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--steps") == 0) options.steps = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--trace") == 0) options.folder = argv[i + 1];
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read(argc, argv);
  try {
    const hvd::Session session;
    std::ofstream file;
    if (!options.folder.empty()) file.open(options.folder + "/" + std::to_string(hvd::rank()));
    Trace trace(options.folder.empty() ? std::cout : file);
    Program(options, trace).run();
    return trace.unexpected() == 0 ? 0 : kUnexpected;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return kFailed;
  }
}
