// Each algorithm against a plain loop, on bytes or float32, over both transports.
#include <atomic>
#include <vector>

#include "core/base/error.h"
#include "ops/algorithms/allreduce.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

using Bounds = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kSegmentFloats = kRingSegmentBytes / 4;

// Slices of different sizes, some empty, some of several segments.
std::int64_t uneven(int index, std::int64_t unit) {
  constexpr std::int64_t kFactors[] = {3, 0, 1, 7, 2, 0, 5, 4};
  return kFactors[index % 8] * unit;
}

Bounds uneven_bounds(int slices, std::int64_t unit) {
  Bounds bounds{0};
  for (int slice = 0; slice < slices; ++slice) bounds.push_back(bounds.back() + uneven(slice, unit));
  return bounds;
}

float value(int rank, std::int64_t index) { return static_cast<float>((rank + 1) * (index % 1000 - 500)); }

std::vector<float> floats_of(int rank, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = value(rank, i);
  return values;
}

std::byte byte_value(int source, int target, std::int64_t index) {
  return static_cast<std::byte>((source * 37 + target * 11 + index + index / 256) & 0xff);
}

struct RankShape {
  TransportKind kind;
  int ranks;
  std::int64_t unit;  // of uneven sizes, in elements
};

// Ranks x sizes over the local transport, a few of them over TCP.
std::vector<RankShape> shapes() {
  std::vector<RankShape> all;
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const std::int64_t unit : {std::int64_t{0}, std::int64_t{1}, std::int64_t{333}, kSegmentFloats + 3}) {
      all.push_back({TransportKind::local, ranks, unit});
      if (ranks == 2 || ranks == 5) all.push_back({TransportKind::tcp, ranks, unit});
    }
  }
  return all;
}

// In place.
SlicedReduction sum_of(std::vector<float>& values, Transport& transport, const std::vector<int>& members, int position,
                       const Bounds& bounds) {
  auto* const memory = reinterpret_cast<std::byte*>(values.data());
  return {.transport = transport,
          .members = members,
          .position = position,
          .reduction = {.dtype = DType::float32},
          .value_type = DType::float32,
          .values = memory,
          .results = memory,
          .slice_bounds = bounds,
          .tag = {},
          .deadline = deadline_after(20s)};
}

}  // namespace

TEST_CASE("ring allreduce and reducescatter on slices of any size") {
  for (const RankShape& shape : shapes()) {
    CAPTURE(transport_name(shape.kind), shape.ranks, shape.unit);
    const auto members = all_ranks(shape.ranks);
    const Bounds bounds = uneven_bounds(shape.ranks, shape.unit);
    const auto ranks_sum = static_cast<float>(shape.ranks * (shape.ranks + 1) / 2);
    run_all_well({.kind = shape.kind, .size = shape.ranks}, [&](std::unique_ptr<Transport> transport) {
      const int rank = transport->rank();
      auto all = floats_of(rank, bounds.back());
      ring_allreduce(sum_of(all, *transport, members, rank, bounds));
      auto own = floats_of(rank, bounds.back());
      ring_reducescatter(sum_of(own, *transport, members, rank, bounds));
      const auto position = static_cast<std::size_t>(rank);
      for (std::int64_t i = 0; i < bounds.back(); ++i) {
        const float expected = ranks_sum * value(0, i);
        const auto at = static_cast<std::size_t>(i);
        require(all[at] == expected, "allreduce");
        require(i < bounds[position] || i >= bounds[position + 1] || own[at] == expected, "reducescatter");
      }
    });
  }
}

TEST_CASE("ring and pairwise allgather of unequal blocks") {
  for (const RankShape& shape : shapes()) {
    CAPTURE(transport_name(shape.kind), shape.ranks, shape.unit);
    const auto members = all_ranks(shape.ranks);
    const Bounds bounds = uneven_bounds(shape.ranks, 4 * shape.unit);
    run_all_well({.kind = shape.kind, .size = shape.ranks}, [&](std::unique_ptr<Transport> transport) {
      const int rank = transport->rank();
      const auto block_of = [&](int owner, const auto& body) {
        const auto o = static_cast<std::size_t>(owner);
        for (std::int64_t i = bounds[o]; i < bounds[o + 1]; ++i)
          body(static_cast<std::size_t>(i), byte_value(owner, 0, i));
      };
      for (const auto& gather : {ring_allgather, pairwise_allgather}) {
        Bytes buffer(static_cast<std::size_t>(bounds.back()));
        block_of(rank, [&](std::size_t i, std::byte b) { buffer[i] = b; });
        gather({*transport, members, rank, {}, deadline_after(20s)}, buffer.data(), bounds);
        for (const int owner : members) {
          block_of(owner, [&](std::size_t i, std::byte b) { require(buffer[i] == b, "allgather"); });
        }
      }
    });
  }
}

TEST_CASE("chain broadcast from every root") {
  for (const RankShape& shape : shapes()) {
    CAPTURE(transport_name(shape.kind), shape.ranks, shape.unit);
    const auto members = all_ranks(shape.ranks);
    run_all_well({.kind = shape.kind, .size = shape.ranks}, [&](std::unique_ptr<Transport> transport) {
      const int rank = transport->rank();
      for (int root = 0; root < shape.ranks; ++root) {
        Bytes buffer(static_cast<std::size_t>(4 * shape.unit));
        for (std::size_t i = 0; rank == root && i < buffer.size(); ++i) {
          buffer[i] = byte_value(root, 0, static_cast<std::int64_t>(i));
        }
        chain_broadcast(
            {*transport, members, rank, {.sequence = static_cast<std::uint64_t>(root)}, deadline_after(20s)}, root,
            buffer);
        for (std::size_t i = 0; i < buffer.size(); ++i) {
          require(buffer[i] == byte_value(root, 0, static_cast<std::int64_t>(i)), "broadcast");
        }
      }
    });
  }
}

TEST_CASE("pairwise alltoall of unequal blocks") {
  for (const RankShape& shape : shapes()) {
    CAPTURE(transport_name(shape.kind), shape.ranks, shape.unit);
    const auto members = all_ranks(shape.ranks);
    const auto size_between = [&](int source, int target) { return uneven(source + 3 * target, shape.unit); };
    run_all_well({.kind = shape.kind, .size = shape.ranks}, [&](std::unique_ptr<Transport> transport) {
      const int rank = transport->rank();
      Bounds in_bounds{0}, out_bounds{0};
      Bytes input;
      for (const int peer : members) {
        for (std::int64_t i = 0; i < size_between(rank, peer); ++i) input.push_back(byte_value(rank, peer, i));
        in_bounds.push_back(static_cast<std::int64_t>(input.size()));
        out_bounds.push_back(out_bounds.back() + size_between(peer, rank));
      }
      Bytes output(static_cast<std::size_t>(out_bounds.back()));
      pairwise_alltoall({*transport, members, rank, {}, deadline_after(20s)}, input.data(), in_bounds, output.data(),
                        out_bounds);
      auto at = output.begin();
      for (const int peer : members) {
        for (std::int64_t i = 0; i < size_between(peer, rank); ++i) {
          require(*at++ == byte_value(peer, rank, i), "alltoall");
        }
      }
    });
  }
}

TEST_CASE("nobody leaves a barrier before everybody came") {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    CAPTURE(ranks);
    const auto members = all_ranks(ranks);
    constexpr int kRounds = 50;
    std::atomic<int> arrived{0};
    run_all_well({.kind = TransportKind::local, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
      for (int round = 1; round <= kRounds; ++round) {
        ++arrived;
        dissemination_barrier({*transport,
                               members,
                               transport->rank(),
                               {.sequence = static_cast<std::uint64_t>(round)},
                               deadline_after(20s)});
        require(arrived >= round * ranks, "barrier");
      }
    });
  }
}

TEST_CASE("members may be any ranks in any order") {
  const std::vector<int> members{4, 1, 3};
  run_all_well({.kind = TransportKind::local, .size = 5}, [&](std::unique_ptr<Transport> transport) {
    for (int position = 0; position < 3; ++position) {
      if (members[static_cast<std::size_t>(position)] != transport->rank()) continue;
      std::vector<float> values(10, static_cast<float>(transport->rank()));
      const Bounds bounds{0, 3, 4, 10};
      ring_allreduce(sum_of(values, *transport, members, position, bounds));
      require(values == std::vector<float>(10, 8.0F), "members");
    }
  });
}
