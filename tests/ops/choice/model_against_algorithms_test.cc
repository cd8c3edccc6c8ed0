// The cost model against the algorithms themselves, in simulated time.
#include <algorithm>
#include <numeric>

#include "ops/algorithms/transport_backend.h"
#include "ops/choice/cost_model.h"
#include "tests/support/catch.h"
#include "tests/support/simulated_transport.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

// How long an allreduce of so many bytes takes the slowest rank.
double simulated_seconds(AllreduceAlgorithm algorithm, LinkSpeed speed, int ranks, DType dtype, std::size_t bytes) {
  std::vector<double> taken(static_cast<std::size_t>(ranks));
  run_all_well({.kind = TransportKind::local, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    auto links = std::make_shared<SimulatedTransport>(std::move(transport), speed);
    const auto backend =
        make_transport_backend("test", links, 20s, [algorithm](const AllreduceSize&) { return algorithm; });
    ProcessSet set{.id = 0, .ranks = std::vector<int>(static_cast<std::size_t>(ranks))};
    std::iota(set.ranks.begin(), set.ranks.end(), 0);
    std::vector<std::byte> values(bytes);
    CollectiveCall call;
    call.dtype = dtype;
    call.set = &set;
    call.pieces.push_back({values.data(), values.data(), static_cast<std::int64_t>(bytes / size_of(dtype))});
    backend->run(call);
    taken[rank] = seconds(links->now() - TimePoint{});
  });
  return *std::ranges::max_element(taken);
}

}  // namespace

TEST_CASE("the model predicts how long the algorithms take") {
  const LinkSpeed speed{.latency = 18us, .seconds_per_byte = 0.8e-9, .per_message = 2us};
  // A simulated link does no arithmetic.
  const LinkCosts costs{.latency = 20e-6, .per_byte = 0.8e-9, .per_message = 2e-6, .reduce_per_byte = 0};
  for (const int ranks : {2, 3, 4, 8, 16}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const std::size_t bytes : {8u, 1u << 12, 1u << 16, 1u << 20}) {
        for (const AllreduceAlgorithm algorithm : kAllreduceAlgorithms) {
          CAPTURE(algorithm_name(algorithm), ranks, dtype_name(dtype), bytes);
          const int widening = dtype == DType::float32 ? 1 : 2;
          const double predicted = predicted_seconds(algorithm, costs, {bytes, ranks, widening});
          const double taken = simulated_seconds(algorithm, speed, ranks, dtype, bytes);
          CAPTURE(predicted, taken);
          CHECK(predicted / taken > 0.8);
          CHECK(predicted / taken < 1.25);
        }
      }
    }
  }
}
