// How fast the reduction kernels are, for each instruction set of this machine.
//
//   bench_reduction              the table
//   bench_reduction bfloat16     its lines for one type
//
// Bytes read and written per second, for blocks of 16 KB and of 256 KB an input: about what the first- and the
// second-level cache hold of a few of them. The sets take turns, so that what else runs is the same for all; each
// number is that of the best of many short runs. Results are compared with the scalar loops' bit by bit.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "ops/reduction/reduce.h"

namespace {

using namespace hvd;

constexpr int kRounds = 300;
constexpr std::size_t kBytesPerRun = 1 << 20;  // read and written in one timed run, about

struct Case {
  DType dtype;
  ReduceOp op;
  std::size_t inputs;
  double factor;
  std::size_t block_bytes;
};

std::vector<Case> table() {
  std::vector<Case> cases;
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    if (only_moves(dtype)) continue;
    const bool truth = dtype == DType::boolean;
    const bool floats = dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32;
    for (const std::size_t bytes : {std::size_t{16} << 10, std::size_t{256} << 10}) {
      for (const std::size_t inputs : {2u, 4u}) {
        cases.push_back({dtype, truth ? ReduceOp::max : ReduceOp::sum, inputs, 1.0, bytes});
      }
      if (!floats) continue;
      cases.push_back({dtype, ReduceOp::sum, 8, 1.0, bytes});
      cases.push_back({dtype, ReduceOp::sum, 32, 1.0, bytes});
      cases.push_back({dtype, ReduceOp::sum, 4, 1.0 / 4, bytes});
      cases.push_back({dtype, ReduceOp::sum, 3, 1.0 / 3, bytes});
      cases.push_back({dtype, ReduceOp::max, 2, 1.0, bytes});
    }
  }
  return cases;
}

// Blocks begin with a page, as the ranks' windows do.
struct alignas(4096) Page {
  std::byte bytes[4096];
};
using Block = std::vector<Page>;

// Numbers of ordinary size: denormals would measure something else.
void fill(const Case& test, std::mt19937_64& random, void* block) {
  std::normal_distribution<float> normal;
  std::vector<float> numbers(test.block_bytes / size_of(test.dtype));
  for (float& number : numbers) number = normal(random);
  const void* const input[] = {numbers.data()};
  switch (test.dtype) {
    case DType::float16:
    case DType::bfloat16:
    case DType::float32:
      reduce({.dtype = test.dtype}, DType::float32, input, test.dtype, block, numbers.size());
      return;
    case DType::float64:
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double number = numbers[i];
        std::memcpy(static_cast<double*>(block) + i, &number, sizeof number);
      }
      return;
    default:
      for (std::size_t i = 0; i < test.block_bytes; ++i) static_cast<std::uint8_t*>(block)[i] = random() % 2;
  }
}

class Measurement {
 public:
  explicit Measurement(const Case& test)
      : case_(test), out_(test.block_bytes / sizeof(Page)), expected_(test.block_bytes / sizeof(Page)) {
    std::mt19937_64 random(1);
    for (std::size_t k = 0; k < test.inputs; ++k) {
      blocks_.emplace_back(test.block_bytes / sizeof(Page));
      fill(test, random, blocks_.back().data());
      inputs_.push_back(blocks_.back().data());
    }
    run(InstructionSet::scalar, expected_);
  }

  // In GB/s, by instruction set. Throws if a result is wrong.
  std::map<InstructionSet, double> measure() {
    const std::size_t moved = (case_.inputs + 1) * case_.block_bytes;
    const auto calls = std::max<std::size_t>(1, kBytesPerRun / moved);
    std::map<InstructionSet, double> best;
    for (int round = 0; round < kRounds; ++round) {
      for (const InstructionSet set : available_instruction_sets()) {
        std::memset(out_.data(), 0x5a, case_.block_bytes);
        const TimePoint start = Clock::now();
        for (std::size_t call = 0; call < calls; ++call) run(set, out_);
        const double taken = seconds(Clock::now() - start) / static_cast<double>(calls);
        const bool right = std::memcmp(out_.data(), expected_.data(), case_.block_bytes) == 0;
        if (!right) throw std::runtime_error(std::string(instruction_set_name(set)) + ": wrong result");
        best[set] = std::max(best[set], static_cast<double>(moved) / taken / 1e9);
      }
    }
    return best;
  }

 private:
  void run(InstructionSet set, Block& out) const {
    const Reduction reduction{.dtype = case_.dtype, .op = case_.op, .postscale = case_.factor, .instruction_set = set};
    reduce(reduction, case_.dtype, inputs_, case_.dtype, out.data(), case_.block_bytes / size_of(case_.dtype));
  }

  const Case case_;
  std::vector<Block> blocks_;
  std::vector<const void*> inputs_;
  Block out_, expected_;
};

}  // namespace

int main(int argc, char** argv) {
  std::printf("type      op      N  factor   block KB  GB/s:");
  for (const InstructionSet set : available_instruction_sets()) std::printf(" %8s", instruction_set_name(set));
  std::printf("\n");
  for (const Case& test : table()) {
    if (argc > 1 && std::string(argv[1]) != dtype_name(test.dtype)) continue;
    try {
      std::printf("%-9s %-3s %5zu  %6.3f  %9zu       ", dtype_name(test.dtype), reduce_op_name(test.op), test.inputs,
                  test.factor, test.block_bytes >> 10);
      for (const auto& [set, speed] : Measurement(test).measure()) std::printf(" %8.1f", speed);
      std::printf("\n");
      std::fflush(stdout);
    } catch (const std::exception& error) {
      std::printf("\n%s\n", error.what());
      return EXIT_FAILURE;
    }
  }
  return EXIT_SUCCESS;
}
