// Adasum over exchanges in plain memory: what it makes of any number of vectors, and how much it moves.
#include "ops/algorithms/allreduce.h"

#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>

#include "tests/ops/algorithms/element_values.h"
#include "tests/support/adasum_reference.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int kAdasumRankCounts[] = {1, 2, 3, 4, 5, 7, 8, 13};
constexpr DType kFloats[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

// Where ranks, as threads, leave what the others may read.
struct Rendezvous {
  explicit Rendezvous(int ranks) : barrier(ranks), posted(static_cast<std::size_t>(ranks)) {}
  std::barrier<> barrier;
  std::vector<const std::byte*> posted;
};

class MemoryExchange final : public SliceExchange {
 public:
  MemoryExchange(Rendezvous& rendezvous, int rank) : barrier_(rendezvous), rank_(static_cast<std::size_t>(rank)) {}

  void scatter(const std::byte* blocks, std::span<const std::int64_t> bounds, std::byte* own) override {
    const std::int64_t size = bounds[rank_ + 1] - bounds[rank_];
    ++scatters;
    bytes_sent += bounds.back() - size;
    meet(blocks, [&](std::size_t source, const std::byte* theirs) {
      std::copy_n(theirs + bounds[rank_], size, own + static_cast<std::int64_t>(source) * size);
    });
  }

  void gather(std::byte* blocks, std::span<const std::int64_t> bounds) override {
    ++gathers;
    bytes_sent += (bounds[rank_ + 1] - bounds[rank_]) * static_cast<std::int64_t>(barrier_.posted.size() - 1);
    meet(blocks, [&](std::size_t source, const std::byte* theirs) {
      if (source == rank_) return;
      std::copy(theirs + bounds[source], theirs + bounds[source + 1], blocks + bounds[source]);
    });
  }

  int scatters = 0, gathers = 0;
  std::int64_t bytes_sent = 0;

 private:
  template <typename Read>
  void meet(const std::byte* own, Read read) {
    barrier_.posted[rank_] = own;
    barrier_.barrier.arrive_and_wait();
    for (std::size_t source = 0; source < barrier_.posted.size(); ++source) read(source, barrier_.posted[source]);
    barrier_.barrier.arrive_and_wait();
  }

  Rendezvous& barrier_;
  std::size_t rank_;
};

Buffer values_of(DType dtype, int rank, std::size_t piece, std::size_t count) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<double>(i + 100 * piece);
    values.push_back(std::sin(at + 1) + std::cos((at + 3) * (rank + 2)));
  }
  return encode(values, dtype);
}

struct Outcome {
  std::vector<std::vector<Buffer>> tensors;  // by rank and piece
  std::vector<int> scatters, gathers;        // by rank
  std::int64_t bytes_sent = 0;               // by all
};

// Rank `joined` has no tensors; what it keeps is what it had.
Outcome run(int ranks, DType dtype, const std::vector<std::size_t>& sizes, int joined = -1) {
  Outcome outcome;
  outcome.tensors.resize(static_cast<std::size_t>(ranks));
  ProcessSet set;
  for (int rank = 0; rank < ranks; ++rank) {
    set.ranks.push_back(rank);
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      outcome.tensors[static_cast<std::size_t>(rank)].push_back(values_of(dtype, rank, p, sizes[p]));
    }
  }
  Rendezvous rendezvous(ranks);
  std::vector<MemoryExchange> exchanges;
  for (int rank = 0; rank < ranks; ++rank) exchanges.emplace_back(rendezvous, rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CollectiveCall call;
      call.dtype = dtype;
      call.op = ReduceOp::adasum;
      call.set = &set;
      for (std::size_t p = 0; p < sizes.size(); ++p) {
        std::byte* memory = outcome.tensors[static_cast<std::size_t>(rank)][p].data();
        if (rank == joined) memory = nullptr;
        call.pieces.push_back({.input = memory, .output = memory, .elements = static_cast<std::int64_t>(sizes[p])});
      }
      Scratch scratch;
      adasum(call, rank, exchanges[static_cast<std::size_t>(rank)], scratch, InstructionSet::automatic);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const MemoryExchange& exchange : exchanges) {
    outcome.scatters.push_back(exchange.scatters);
    outcome.gathers.push_back(exchange.gathers);
    outcome.bytes_sent += exchange.bytes_sent;
  }
  return outcome;
}

void check(const Outcome& outcome, DType dtype, std::size_t piece, std::size_t count, int joined = -1) {
  const int ranks = static_cast<int>(outcome.tensors.size());
  std::vector<std::vector<double>> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(rank == joined ? std::vector<double>(count) : decode(values_of(dtype, rank, piece, count), dtype));
  }
  const AdasumTolerance tolerance(dtype, inputs);
  const auto expected = adasum_reference(inputs);
  const std::size_t reader = joined == 0 ? 1 : 0;
  const auto values = decode(outcome.tensors[reader][piece], dtype);
  REQUIRE(values.size() == count);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += tolerance.allows(values[i], expected[i]) ? 0 : 1;
  CHECK(wrong == 0);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == joined) continue;
    CHECK(outcome.tensors[static_cast<std::size_t>(rank)][piece] == outcome.tensors[reader][piece]);
  }
}

}  // namespace

TEST_CASE("adasum of any number of vectors equals a plain loop") {
  const std::vector<std::size_t> sizes{0, 1, 3, 1000};
  for (const int ranks : kAdasumRankCounts) {
    for (const DType dtype : kFloats) {
      CAPTURE(ranks, dtype_name(dtype));
      const Outcome fused = run(ranks, dtype, sizes);
      for (std::size_t p = 0; p < sizes.size(); ++p) check(fused, dtype, p, sizes[p]);
      check(run(ranks, dtype, {777}), dtype, 0, 777);
    }
  }
}

TEST_CASE("adasum of a tensor does not depend on what it is fused with") {
  for (const int ranks : {2, 3, 8}) {
    for (const DType dtype : kFloats) {
      CAPTURE(ranks, dtype_name(dtype));
      const Buffer alone = run(ranks, dtype, {1001}).tensors[0][0];
      CHECK(run(ranks, dtype, {1001, 5}).tensors[0][0] == alone);
      CHECK(run(ranks, dtype, {1001, 3, 0, 4000}).tensors[0][0] == alone);
    }
  }
}

TEST_CASE("adasum takes zeros from a joined rank, and gives it nothing") {
  for (const int ranks : {2, 3, 5}) {
    for (int joined = 0; joined < ranks; ++joined) {
      CAPTURE(ranks, joined);
      for (const std::vector<std::size_t>& sizes : {std::vector<std::size_t>{500}, {500, 7}}) {
        const Outcome outcome = run(ranks, DType::bfloat16, sizes, joined);
        check(outcome, DType::bfloat16, 0, 500, joined);
        CHECK(outcome.tensors[static_cast<std::size_t>(joined)][0] == values_of(DType::bfloat16, joined, 0, 500));
      }
    }
  }
}

TEST_CASE("adasum moves the tensors twice, in their own type, and dot products once a level") {
  const std::vector<std::size_t> sizes{1000, 1, 30};
  constexpr std::int64_t kElements = 1031;
  for (const int ranks : kAdasumRankCounts) {
    for (const DType dtype : {DType::float16, DType::float64}) {
      CAPTURE(ranks, dtype_name(dtype));
      int levels = 0;
      std::int64_t pairs = 0;
      for (int left = ranks; left > 1; left = (left + 1) / 2, ++levels) pairs += left / 2;
      const Outcome outcome = run(ranks, dtype, sizes);
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(outcome.scatters[static_cast<std::size_t>(rank)] == 1);
        CHECK(outcome.gathers[static_cast<std::size_t>(rank)] == levels + 1);
      }
      const auto tensors = 2 * (ranks - 1) * kElements * static_cast<std::int64_t>(size_of(dtype));
      const auto products = ranks * (ranks - 1) * pairs * 3 * 24;
      CHECK(outcome.bytes_sent == tensors + products);
    }
  }
}

TEST_CASE("adasum is for allreduce of floats") {
  CollectiveCall call;
  call.op = ReduceOp::adasum;
  for (const DType dtype : kAllTypes) {
    call.dtype = dtype;
    CHECK(is_adasum(call) == (std::find(std::begin(kFloats), std::end(kFloats), dtype) != std::end(kFloats)));
  }
  call.dtype = DType::float32;
  call.collective = Collective::reducescatter;
  CHECK_FALSE(is_adasum(call));
  call.collective = Collective::allreduce;
  call.op = ReduceOp::sum;
  CHECK_FALSE(is_adasum(call));
}
