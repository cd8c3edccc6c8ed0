// Sums have the same bits on every rank, in every run, whatever the timing and whatever they are fused with.
#include <thread>

#include "ops/algorithms/transport_backend.h"
#include "ops/choice/algorithm_table.h"
#include "tests/ops/algorithms/element_values.h"
#include "tests/support/catch.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/link_costs.h"
#include "tests/support/random_bits.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

// Values of all magnitudes, so that the order of additions shows in the last bits.
std::vector<double> rough_values(std::size_t count, unsigned seed) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random_bits(std::uint64_t{seed} << 32 | i);
    values[i] = (static_cast<double>(bits >> 11) * 0x1p-52 - 1) * static_cast<double>(1 << bits % 13) * 0x1p-6;
  }
  return values;
}

// The results of one allreduce of tensors with these sizes, by rank and tensor.
std::vector<std::vector<Buffer>> reduce_all(int ranks, DType dtype, const std::vector<std::size_t>& sizes,
                                            const std::vector<unsigned>& seeds, int slow_call = -1) {
  std::vector<std::vector<Buffer>> results(static_cast<std::size_t>(ranks));
  ProcessSet set;
  for (int rank = 0; rank < ranks; ++rank) set.ranks.push_back(rank);
  run_all_well({.kind = TransportKind::local, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    auto& tensors = results[static_cast<std::size_t>(rank)];
    CollectiveCall call;
    call.dtype = dtype;
    call.set = &set;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      tensors.push_back(encode(rough_values(sizes[i], seeds[i] * 100 + static_cast<unsigned>(rank)), dtype));
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      call.pieces.push_back(
          {.input = tensors[i].data(), .output = tensors[i].data(), .elements = static_cast<std::int64_t>(sizes[i])});
    }
    const Fault slow{.at = Fault::At::wait, .call = rank == 0 ? slow_call : -1, .action = [] {
                       const Deadline end = deadline_after(3ms);
                       while (Clock::now() < end) std::this_thread::yield();
                     }};
    make_transport_backend("local", std::make_unique<FaultyTransport>(std::move(transport), slow), 20s,
                           AllreduceChoice({kTenGigabit}))
        ->run(call);
  });
  return results;
}

}  // namespace

TEST_CASE("a sum has the same bits on all ranks and in all runs") {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const int ranks : {2, 3, 5, 8}) {
      CAPTURE(dtype_name(dtype), ranks);
      const auto first = reduce_all(ranks, dtype, {60'000}, {1});
      for (const auto& tensors : first) CHECK(tensors == first.front());
      for (const int slow_call : {0, 3, 7}) CHECK(reduce_all(ranks, dtype, {60'000}, {1}, slow_call) == first);
    }
  }
}

TEST_CASE("a tensor's sum does not depend on what it is fused with") {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int ranks : {2, 3, 8}) {
      CAPTURE(dtype_name(dtype), ranks);
      const auto alone = reduce_all(ranks, dtype, {1001}, {7}).front().front();
      CHECK(reduce_all(ranks, dtype, {5, 1001}, {1, 7}).front()[1] == alone);
      CHECK(reduce_all(ranks, dtype, {1001, 40'000}, {7, 2}).front()[0] == alone);
      CHECK(reduce_all(ranks, dtype, {33, 100'000, 1001, 1}, {3, 4, 7, 5}).front()[2] == alone);
    }
  }
}
