// What allreduce.h and the algorithms' essays say beyond the results: the order of use, and the bytes on the
// wire.
#include "ops/algorithms/allreduce.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/recording_transport.h"
#include "tests/support/require.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

using Bounds = std::vector<std::int64_t>;

AllreduceAlgorithm any_algorithm() {
  return GENERATE(AllreduceAlgorithm::one_shot, AllreduceAlgorithm::bruck, AllreduceAlgorithm::direct,
                  AllreduceAlgorithm::halving_doubling, AllreduceAlgorithm::ring);
}

// One rank's memory and what it was told.
struct RankBuffers {
  RankBuffers(Transport& its_transport, int ranks, const Bounds& slice_bounds, DType dtype, DType value_type)
      : members(static_cast<std::size_t>(ranks)),
        bounds(slice_bounds),
        values(static_cast<std::size_t>(bounds.back()) * size_of(value_type)),
        results(static_cast<std::size_t>(bounds.back()) * size_of(dtype)),
        args{.transport = its_transport,
             .members = members,
             .position = its_transport.rank(),
             .reduction = {.dtype = dtype},
             .value_type = value_type,
             .values = values.data(),
             .results = results.data(),
             .slice_bounds = bounds,
             .tag = {},
             .deadline = deadline_after(20s)} {
    std::iota(members.begin(), members.end(), 0);
  }
  RankBuffers(const RankBuffers&) = delete;
  RankBuffers& operator=(const RankBuffers&) = delete;

  std::vector<int> members;
  Bounds bounds;
  std::vector<std::byte> values, results;
  SlicedReduction args;
};

// The elements of the slices from `first` on, going down, `count` of them.
std::vector<std::int64_t> elements_down(const SlicedReduction& args, int first, int count) {
  std::vector<std::int64_t> elements;
  for (int back = 0; back < count; ++back) {
    const int slice = args.around(first - back);
    for (std::int64_t e = args.begin_of(slice); e < args.end_of(slice); ++e) elements.push_back(e);
  }
  return elements;
}

std::size_t bytes_sent_by_each(AllreduceAlgorithm algorithm, DType dtype, int ranks, std::int64_t slice) {
  Bounds bounds;
  for (int i = 0; i <= ranks; ++i) bounds.push_back(i * slice);
  std::vector<std::size_t> sent(static_cast<std::size_t>(ranks));
  run_all_well({.kind = TransportKind::local, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
    std::vector<SentMessage> messages;
    RecordingTransport recording(std::move(transport), messages);
    RankBuffers buffers(recording, ranks, bounds, dtype, value_type_of(algorithm, dtype));
    run_allreduce(algorithm, buffers.args);
    for (const SentMessage& message : messages) sent[static_cast<std::size_t>(recording.rank())] += message.bytes;
  });
  for (const std::size_t bytes : sent) CHECK(bytes == sent.front());
  return sent.front();
}

}  // namespace

TEST_CASE("values become ready before they are used, and results complete, once and in the order of use") {
  const auto algorithm = any_algorithm();
  const Bounds bounds{0, 40'000, 40'000, 40'007, 110'000, 110'001};
  for (const int ranks : {1, 2, 3, 5}) {
    CAPTURE(algorithm_name(algorithm), ranks);
    const Bounds some(bounds.end() - ranks - 1, bounds.end());
    run_all_well({.kind = TransportKind::local, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
      Bounds from_zero;
      for (const std::int64_t bound : some) from_zero.push_back(bound - some.front());
      RankBuffers buffers(*transport, ranks, from_zero, DType::float32, DType::float32);
      SlicedReduction& args = buffers.args;
      std::map<int, std::vector<std::int64_t>> ready;  // by slice
      std::vector<int> begun;                          // slices, by their first values
      std::vector<std::int64_t> complete;
      auto* const values = reinterpret_cast<float*>(buffers.values.data());
      const auto* const results = reinterpret_cast<const float*>(buffers.results.data());
      args.ready = [&](std::int64_t begin, std::int64_t end) {
        require(begin < end, "an empty range");
        int slice = 0;
        while (args.end_of(slice) <= begin) ++slice;
        require(end <= args.end_of(slice), "a range of two slices");
        for (std::int64_t e = begin; e < end; ++e) {
          if (ready[slice].empty()) begun.push_back(slice);
          ready[slice].push_back(e);
          values[e] = static_cast<float>(e);
        }
      };
      args.complete = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t e = begin; e < end; ++e) {
          require(results[e] == static_cast<float>(e) * static_cast<float>(ranks), "a result that is not there");
          complete.push_back(e);
        }
      };
      run_allreduce(algorithm, args);
      std::vector<int> in_order;
      for (int back = 1; back <= ranks; ++back) {
        const int slice = args.around(args.position - back);
        require(ready[slice] == elements_down(args, slice, 1), "values");
        if (!ready[slice].empty()) in_order.push_back(slice);
      }
      require(begun == in_order, "the order of slices");
      require(complete == elements_down(args, args.position, ranks), "results");
    });
  }
}

TEST_CASE("a reducescatter completes the own slice only") {
  const Bounds bounds{0, 30'000, 30'001, 75'000};
  run_all_well({.kind = TransportKind::local, .size = 3}, [&](std::unique_ptr<Transport> transport) {
    RankBuffers buffers(*transport, 3, bounds, DType::float16, DType::float32);
    std::vector<std::int64_t> complete;
    buffers.args.complete = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t e = begin; e < end; ++e) complete.push_back(e);
    };
    ring_reducescatter(buffers.args);
    require(complete == elements_down(buffers.args, buffers.args.position, 1), "results");
  });
}

TEST_CASE("each algorithm sends the bytes that its essay says") {
  constexpr std::size_t kSlice = 50'000;
  for (const int ranks : {2, 4, 8}) {
    const auto others = static_cast<std::size_t>(ranks - 1), all = static_cast<std::size_t>(ranks);
    CAPTURE(ranks);
    const auto sent = [&](AllreduceAlgorithm algorithm, DType dtype) {
      return bytes_sent_by_each(algorithm, dtype, ranks, kSlice);
    };
    // Partial sums of 16-bit floats take four bytes, results two.
    CHECK(sent(AllreduceAlgorithm::ring, DType::float32) == others * kSlice * (4 + 4));
    CHECK(sent(AllreduceAlgorithm::ring, DType::bfloat16) == others * kSlice * (4 + 2));
    CHECK(sent(AllreduceAlgorithm::halving_doubling, DType::float32) == others * kSlice * (4 + 4));
    CHECK(sent(AllreduceAlgorithm::halving_doubling, DType::bfloat16) == others * kSlice * (4 + 2));
    // No partial sum travels.
    CHECK(sent(AllreduceAlgorithm::direct, DType::float32) == others * kSlice * (4 + 4));
    CHECK(sent(AllreduceAlgorithm::direct, DType::bfloat16) == others * kSlice * (2 + 2));
    for (const auto algorithm : {AllreduceAlgorithm::one_shot, AllreduceAlgorithm::bruck}) {
      CHECK(sent(algorithm, DType::float32) == others * all * kSlice * 4);
      CHECK(sent(algorithm, DType::bfloat16) == others * all * kSlice * 2);
    }
  }
}
