// Sums through the whole stack: each rank submits the same tensors in an order and at times of its own, the engine
// fuses what comes together, threads are held up anywhere. All runs on all ranks of a topology must give the same bits.
#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/jitter.h"
#include "tests/support/random_bits.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"

namespace hvd::testing {

namespace {

const std::vector<std::int64_t> kBitwiseSizes{1, 5, 28, 29, 999, 4096, 20'011, 50'000, 131'072};

using Tensors = std::vector<std::vector<float>>;

// Of all magnitudes, so that the order of additions shows in the last bits.
Tensors inputs_of(int rank) {
  Tensors tensors;
  for (std::size_t t = 0; t < kBitwiseSizes.size(); ++t) {
    std::vector<float>& tensor = tensors.emplace_back(static_cast<std::size_t>(kBitwiseSizes[t]));
    const std::uint64_t first = (static_cast<std::uint64_t>(rank) * 100 + t) << 32;
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      const std::uint64_t bits = random_bits(first + i);
      tensor[i] = (static_cast<float>(bits >> 40) * 0x1p-23f - 1) * static_cast<float>(1 << bits % 13) * 0x1p-6f;
    }
  }
  return tensors;
}

Tensors reduce_all(Runtime& runtime, unsigned seed) {
  Tensors tensors = inputs_of(runtime.topology().rank);
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::minstd_rand random(seed + static_cast<unsigned>(runtime.topology().rank));
  std::shuffle(order.begin(), order.end(), random);
  std::vector<CallerReference> handles;
  for (const std::size_t t : order) {
    CallArguments call{.name = "tensor " + std::to_string(t)};
    call.inputs = call.outputs = {{.data = tensors[t].data(), .shape = {kBitwiseSizes[t]}}};
    handles.push_back(runtime.submit(call));
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  }
  for (CallerReference& handle : handles) {
    require(handle->wait(deadline_after(60s)), "an allreduce does not end");
    require(handle->completion.status().ok(), handle->completion.status().message());
  }
  return tensors;
}

const Layout kBitwiseLayouts[] = {{{1}},        {{2}},        {{3}},    {{5}},       {{8}},       {{2}, false},
                                  {{3}, false}, {{5}, false}, {{2, 2}}, {{1, 1, 1}}, {{3, 1, 2}}, {{4, 4}}};

}  // namespace

TEST_CASE("a topology has one result, whatever the order, the fusion and the timing") {
  const auto& layout = GENERATE(from_range(std::begin(kBitwiseLayouts), std::end(kBitwiseLayouts)));
  if (kSanitized && layout.size() > 4) return;
  INFO(layout.name());
  const Jitter jitter(7);
  std::vector<Tensors> results(static_cast<std::size_t>(layout.size()));
  Tensors first;
  for (const char* threshold : {"67108864", "100000", "0"}) {
    for (unsigned repeat = 0; repeat < (kSanitized ? 1U : 3U); ++repeat) {
      run_ranks({.layout = layout, .environment = {{"HVD_FUSION_THRESHOLD", threshold}}}, [&](Runtime& runtime) {
        results[static_cast<std::size_t>(runtime.topology().rank)] = reduce_all(runtime, repeat);
      });
      if (first.empty()) first = results[0];
      for (const Tensors& result : results) CHECK(result == first);
    }
  }
}

}  // namespace hvd::testing
