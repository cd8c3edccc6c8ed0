// One result per topology: whatever the fusion, the timing, the slices' owners, the chunks and the memory, a tensor's
// sum has the bits of a plain loop in rank order.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "ops/host/collectives.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/jitter.h"
#include "tests/support/sanitized.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

// Sizes for every form of an allreduce.
const std::vector<std::int64_t> kBitwiseSizes{1, 3, 28, 29, 700, 4096, 5003, 40'000, 70'001};

// One division of the tensors into buckets, the same on all ranks.
std::vector<std::vector<std::size_t>> random_buckets(std::minstd_rand& random) {
  std::vector<std::size_t> order(kBitwiseSizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::vector<std::size_t>> buckets(1);
  for (const std::size_t tensor : order) {
    if (random() % 2 == 0) buckets.emplace_back();
    buckets.back().push_back(tensor);
  }
  return buckets;
}

void reduce_in_buckets(HostRank& self, DType dtype, unsigned seed) {
  std::minstd_rand random(seed);
  const Reduction reduction{.dtype = dtype, .postscale = 1.0 / self.size};
  std::vector<Buffer> elsewhere;
  for (const auto& bucket : random_buckets(random)) {
    const bool in_arena = random() % 2 == 0;
    std::vector<Piece> pieces;
    for (const std::size_t t : bucket) {
      const Buffer values = tensor(dtype, kBitwiseSizes[t], self.rank, t);
      void* memory = in_arena ? self.arena->allocate(values.size()) : elsewhere.emplace_back(values.size()).data();
      write_bytes(memory, values);
      pieces.push_back({memory, memory, kBitwiseSizes[t]});
    }
    host_allreduce(*self.context, pieces, reduction);
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      const Buffer expected = reduced(reduction, kBitwiseSizes[bucket[i]], self.size, bucket[i]);
      require(has_bytes(pieces[i].output, expected), std::to_string(kBitwiseSizes[bucket[i]]) + " elements of " +
                                                         dtype_name(dtype) + ", seed " + std::to_string(seed));
      if (in_arena) self.arena->free(pieces[i].output);
    }
  }
}

}  // namespace

TEST_CASE("host: a sum has one result, whatever the fusion, the timing and the division of work") {
  const int ranks = GENERATE(from_range(kSanitized ? std::vector{2, 5} : std::vector{1, 2, 3, 4, 5, 6, 7, 8}));
  CAPTURE(ranks);
  const Jitter jitter(static_cast<unsigned>(ranks));
  for (const auto& [cpus, chunk_bytes] : {std::pair(64, 4096), std::pair(1, 64 << 10)}) {
    on_host_ranks({.ranks_by_host = {ranks},
                   .cpus = cpus,
                   .chunk_bytes = static_cast<std::size_t>(chunk_bytes),
                   .arena_bytes = 8 << 20},
                  [&](HostRank& self) {
                    for (unsigned repeat = 0; repeat < (kSanitized ? 2U : 3U); ++repeat) {
                      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
                        if (kSanitized && dtype == DType::float64) continue;
                        reduce_in_buckets(self, dtype, repeat * 100 + static_cast<unsigned>(ranks));
                      }
                    }
                  });
  }
  CHECK(jitter.interruptions() > 0);
}

TEST_CASE("host: a sum has the same bits with every form that the user may name") {
  const HostForm form = GENERATE(from_range(std::begin(kNamedForms), std::end(kNamedForms)));
  const int cpus = GENERATE(64, 1);
  CAPTURE(form_name(form), cpus);
  on_host_ranks({.ranks_by_host = {3}, .cpus = cpus, .arena_bytes = 8 << 20}, [&](HostRank& self) {
    self.context->wanted = {{0, kNoLimit, form}};
    for (unsigned repeat = 0; repeat < 3; ++repeat) reduce_in_buckets(self, DType::float32, repeat);
  });
}
