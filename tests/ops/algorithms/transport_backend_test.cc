// Every collective x type x operation x rank count x size against a plain loop, through the backend.
#include "ops/algorithms/transport_backend.h"

#include <functional>
#include <string>

#include "core/base/error.h"
#include "ops/choice/algorithm_table.h"
#include "tests/ops/algorithms/element_values.h"
#include "tests/support/catch.h"
#include "tests/support/link_costs.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

using Counts = std::vector<std::int64_t>;

const Counts kSizes{0, 1, 3, 1000};
// Several segments per slice even at eight ranks.
constexpr std::int64_t kLarge = 140'003;

// One rank's side of a test: makes calls, by turns such that are agreed on and such that are asked for, compares
// results. Runs on the rank's thread, so it throws instead of CHECK.
struct RankSide {
  std::unique_ptr<Backend> backend;
  ProcessSet set;
  int rank;
  std::uint64_t sequence = 0;

  CollectiveCall call(Collective collective, DType dtype, ReduceOp op = ReduceOp::sum) {
    CollectiveCall made;
    made.collective = collective;
    made.dtype = dtype;
    made.op = op;
    made.set = &set;
    made.sequence = sequence++;
    made.entry = made.sequence % 2 == 0 ? EntryMode::negotiated : EntryMode::asking;
    made.call_id = static_cast<std::uint32_t>(made.sequence);
    return made;
  }

  void expect(const Buffer& actual, const std::vector<double>& expected, const CollectiveCall& c,
              const std::string& what) {
    const auto values = decode(actual, c.dtype);
    if (values == expected) return;
    std::size_t at = 0;
    while (at < expected.size() && at < values.size() && values[at] == expected[at]) ++at;
    throw Internal(std::string(collective_name(c.collective)) + " of " + dtype_name(c.dtype) + " with " +
                   reduce_op_name(c.op) + ", " + what + ": element " + std::to_string(at) + " of " +
                   std::to_string(expected.size()) + " is wrong");
  }
};

void on_ranks(TransportKind kind, int ranks, const std::function<void(RankSide&)>& body) {
  ProcessSet set{.id = 5, .ranks = {}};
  for (int rank = 0; rank < ranks; ++rank) set.ranks.push_back(rank);
  run_all_well({.kind = kind, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    const std::shared_ptr<Transport> shared = std::move(transport);
    RankSide side{
        .backend = make_transport_backend("test", shared, 20s, AllreduceChoice({kTenGigabit}),
                                          InstructionSet::automatic, make_transport_vote_exchange(shared, 20s)),
        .set = set,
        .rank = rank};
    body(side);
  });
}

std::vector<double> contribution(ReduceOp op, DType dtype, int rank, std::size_t piece, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(small_value(op, dtype, rank, piece, static_cast<std::size_t>(i)));
  }
  return values;
}

// What the ranks from `first` on make of a piece.
std::vector<double> folded(ReduceOp op, DType dtype, int first, int ranks, std::size_t piece, std::int64_t count) {
  auto result = contribution(op, dtype, first, piece, count);
  for (int rank = first + 1; rank < ranks; ++rank) {
    const auto next = contribution(op, dtype, rank, piece, count);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = fold(op, result[i], next[i]);
  }
  return result;
}

void check_allreduce(RankSide& side, DType dtype, ReduceOp op, const Counts& sizes, bool in_place) {
  auto call = side.call(Collective::allreduce, dtype, op);
  std::vector<Buffer> inputs, outputs;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    inputs.push_back(encode(contribution(op, dtype, side.rank, p, sizes[p]), dtype));
    outputs.emplace_back(inputs.back().size());
  }
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    Buffer& target = in_place ? inputs[p] : outputs[p];
    call.pieces.push_back({.input = inputs[p].data(), .output = target.data(), .elements = sizes[p]});
  }
  side.backend->run(call);
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    side.expect(in_place ? inputs[p] : outputs[p], folded(op, dtype, 0, side.set.size(), p, sizes[p]), call,
                "piece " + std::to_string(p) + (in_place ? " in place" : ""));
  }
}

void check_reducescatter(RankSide& side, DType dtype, ReduceOp op, const Counts& sizes) {
  auto call = side.call(Collective::reducescatter, dtype, op);
  const int ranks = side.set.size();
  const auto own = static_cast<std::size_t>(side.rank);
  std::vector<Buffer> inputs, outputs;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    Counts counts;  // uneven: everything that does not divide goes to the last rank
    for (int r = 0; r < ranks; ++r) counts.push_back(sizes[p] / ranks + (r == ranks - 1 ? sizes[p] % ranks : 0));
    call.counts.push_back(counts);
    inputs.push_back(encode(contribution(op, dtype, side.rank, p, sizes[p]), dtype));
    outputs.emplace_back(static_cast<std::size_t>(counts[own]) * size_of(dtype));
  }
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    call.pieces.push_back({.input = inputs[p].data(), .output = outputs[p].data(), .elements = sizes[p]});
  }
  side.backend->run(call);
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    auto expected = folded(op, dtype, 0, ranks, p, sizes[p]);
    const auto begin = expected.begin() + side.rank * (sizes[p] / ranks);
    side.expect(outputs[p], {begin, begin + call.counts[p][own]}, call, "piece " + std::to_string(p));
  }
}

void check_allgather(RankSide& side, DType dtype, std::int64_t unit) {
  auto call = side.call(Collective::allgather, dtype);
  const int ranks = side.set.size();
  constexpr std::size_t kPieces = 2;
  std::vector<Buffer> inputs(kPieces), outputs(kPieces);
  std::vector<std::vector<double>> expected(kPieces);
  for (std::size_t p = 0; p < kPieces; ++p) {
    Counts counts;
    for (int r = 0; r < ranks; ++r) {
      counts.push_back((r + static_cast<int>(p)) % 3 * unit);
      const auto values = contribution(ReduceOp::sum, dtype, r, p, counts.back());
      expected[p].insert(expected[p].end(), values.begin(), values.end());
      if (r == side.rank) inputs[p] = encode(values, dtype);
    }
    outputs[p].resize(expected[p].size() * size_of(dtype));
    call.pieces.push_back({.input = inputs[p].data(),
                           .output = outputs[p].data(),
                           .elements = counts[static_cast<std::size_t>(side.rank)]});
    call.counts.push_back(counts);
  }
  side.backend->run(call);
  for (std::size_t p = 0; p < kPieces; ++p) side.expect(outputs[p], expected[p], call, "piece " + std::to_string(p));
}

void check_broadcast(RankSide& side, DType dtype, const Counts& sizes, int root) {
  auto call = side.call(Collective::broadcast, dtype);
  call.root = root;
  std::vector<Buffer> inputs, outputs;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    inputs.push_back(encode(contribution(ReduceOp::sum, dtype, side.rank, p, sizes[p]), dtype));
    outputs.emplace_back(inputs.back().size());
    call.pieces.push_back({.input = inputs[p].data(), .output = outputs[p].data(), .elements = sizes[p]});
  }
  side.backend->run(call);
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    side.expect(outputs[p], contribution(ReduceOp::sum, dtype, root, p, sizes[p]), call,
                "root " + std::to_string(root));
  }
}

void check_alltoall(RankSide& side, DType dtype, std::int64_t unit, bool in_place) {
  auto call = side.call(Collective::alltoall, dtype);
  const int ranks = side.set.size();
  std::vector<double> input, expected;
  for (int source = 0; source < ranks; ++source) {
    call.counts.emplace_back();
    for (int target = 0; target < ranks; ++target) {
      // In place needs as much in as out: the matrix is symmetric.
      const auto count = (source + target) % 3 * unit;
      call.counts.back().push_back(count);
      const auto values = contribution(ReduceOp::sum, dtype, source, static_cast<std::size_t>(target), count);
      if (source == side.rank) input.insert(input.end(), values.begin(), values.end());
      if (target == side.rank) expected.insert(expected.end(), values.begin(), values.end());
    }
  }
  Buffer in = encode(input, dtype);
  Buffer out(expected.size() * size_of(dtype));
  call.pieces.push_back({.input = in.data(),
                         .output = in_place ? in.data() : out.data(),
                         .elements = static_cast<std::int64_t>(input.size())});
  side.backend->run(call);
  side.expect(in_place ? in : out, expected, call, in_place ? "in place" : "");
}

// Reductions: every type with every operation it has.
void check_reductions(RankSide& side, const Counts& sizes) {
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : kReductions) {
      auto probe = side.call(Collective::allreduce, dtype, op);
      if (side.backend->score(probe) == 0) continue;
      check_allreduce(side, dtype, op, sizes, false);
      check_allreduce(side, dtype, op, sizes, true);
      check_allreduce(side, dtype, op, {sizes.back()}, false);
      check_reducescatter(side, dtype, op, sizes);
    }
  }
}

void check_movements(RankSide& side, const Counts& sizes) {
  for (const DType dtype : kAllTypes) {
    for (const std::int64_t size : sizes) {
      check_allgather(side, dtype, size);
      check_alltoall(side, dtype, size, false);
      check_alltoall(side, dtype, size, true);
    }
    for (int root = 0; root < side.set.size(); ++root) check_broadcast(side, dtype, sizes, root);
  }
}

}  // namespace

TEST_CASE("the backend takes what it can do") {
  on_ranks(TransportKind::local, 1, [](RankSide& side) {
    const auto scores = [&](auto change) {
      auto call = side.call(Collective::allreduce, DType::float32);
      change(call);
      return side.backend->score(call) > 0;
    };
    const ProcessSet beyond{.id = 1, .ranks = {0, 7}};
    const std::vector<bool> actual{
        scores([](CollectiveCall&) {}),
        scores([](CollectiveCall& c) { c.collective = Collective::barrier; }),
        scores([](CollectiveCall& c) { c.dtype = DType::boolean, c.collective = Collective::alltoall; }),
        scores([](CollectiveCall& c) { c.dtype = DType::boolean, c.op = ReduceOp::max; }),
        scores([](CollectiveCall& c) { c.dtype = DType::boolean; }),
        scores([](CollectiveCall& c) { c.op = ReduceOp::adasum; }),
        scores([](CollectiveCall& c) { c.op = ReduceOp::adasum, c.dtype = DType::int32; }),
        scores([](CollectiveCall& c) { c.op = ReduceOp::adasum, c.collective = Collective::reducescatter; }),
        scores([](CollectiveCall& c) { c.collective = Collective::join; }),
        scores([](CollectiveCall& c) { c.device = 0; }),
        scores([&](CollectiveCall& c) { c.set = &beyond; }),
    };
    if (actual != std::vector<bool>{true, true, true, true, false, true, false, false, false, false, false}) {
      throw Internal("a wrong score");
    }
  });
}

TEST_CASE("reductions of every type, operation and size") {
  const int ranks = GENERATE(from_range(std::begin(kRankCounts), std::end(kRankCounts)));
  CAPTURE(ranks);
  on_ranks(TransportKind::local, ranks, [](RankSide& side) {
    check_reductions(side, kSizes);
    check_allreduce(side, DType::float32, ReduceOp::sum, {kLarge}, true);
    check_allreduce(side, DType::bfloat16, ReduceOp::sum, {kLarge, 17, kLarge / 2}, false);
    check_allreduce(side, DType::uint8, ReduceOp::max, {4 * kLarge, 17}, false);
    check_reducescatter(side, DType::float16, ReduceOp::sum, {kLarge, 17});
  });
}

TEST_CASE("movements of every type and size") {
  const int ranks = GENERATE(from_range(std::begin(kRankCounts), std::end(kRankCounts)));
  CAPTURE(ranks);
  on_ranks(TransportKind::local, ranks, [](RankSide& side) {
    check_movements(side, kSizes);
    check_allgather(side, DType::int16, kLarge / 4);
    check_alltoall(side, DType::float64, kLarge / 16, false);
    check_broadcast(side, DType::float32, {kLarge, 5}, side.set.size() / 2);
  });
}

TEST_CASE("the same over tcp") {
  const int ranks = GENERATE(2, 4);
  CAPTURE(ranks);
  on_ranks(TransportKind::tcp, ranks, [](RankSide& side) {
    check_reductions(side, {0, 1, 1000});
    check_movements(side, {0, 3, 1000});
    check_allreduce(side, DType::float32, ReduceOp::sum, {kLarge}, true);
    check_alltoall(side, DType::float64, kLarge / 4, false);
    side.backend->run(side.call(Collective::barrier, DType::uint8));
  });
}

TEST_CASE("prescale and postscale") {
  struct Case {
    DType dtype;
    double prescale, postscale;
  };
  const Case cases[] = {{DType::float32, 0.5, 1}, {DType::float32, 1, 0.25}, {DType::float64, 2, 0.5},
                        {DType::float16, 0.5, 4}, {DType::bfloat16, 4, 0.5}, {DType::int32, 2, 1},
                        {DType::int64, 3, 2}};
  for (const int ranks : {1, 3}) {
    on_ranks(TransportKind::local, ranks, [&](RankSide& side) {
      for (const Case& c : cases) {
        for (const std::size_t pieces : {std::size_t{1}, std::size_t{2}}) {
          auto call = side.call(Collective::allreduce, c.dtype);
          call.prescale = c.prescale;
          call.postscale = c.postscale;
          std::vector<Buffer> tensors;
          for (std::size_t p = 0; p < pieces; ++p) {
            tensors.push_back(encode(contribution(ReduceOp::sum, c.dtype, side.rank, p, 100), c.dtype));
          }
          for (Buffer& t : tensors) call.pieces.push_back({.input = t.data(), .output = t.data(), .elements = 100});
          side.backend->run(call);
          for (std::size_t p = 0; p < pieces; ++p) {
            auto expected = folded(ReduceOp::sum, c.dtype, 0, ranks, p, 100);
            for (double& v : expected) v *= c.prescale * c.postscale;
            side.expect(tensors[p], expected, call, "scaled");
          }
        }
      }
    });
  }
}

TEST_CASE("sixteen-bit sums are rounded once") {
  // 2048 + 1 is no float16: rounding after each addition would lose every 1.
  constexpr int kRanks = 5;
  on_ranks(TransportKind::local, kRanks, [](RankSide& side) {
    for (const Collective collective : {Collective::allreduce, Collective::reducescatter}) {
      auto call = side.call(collective, DType::float16);
      const std::int64_t elements = 10;
      Buffer in = encode(std::vector<double>(10, side.rank == 0 ? 2048.0 : 1.0), DType::float16);
      Buffer out(in.size());
      call.pieces.push_back({.input = in.data(), .output = out.data(), .elements = elements});
      if (collective == Collective::reducescatter) {
        call.counts.push_back(Counts(std::size_t{kRanks}, 2));
        out.resize(4);
      }
      side.backend->run(call);
      side.expect(out, std::vector<double>(out.size() / 2, 2052.0), call, "rounded");
    }
  });
}

TEST_CASE("a joined rank gives the identity and keeps nothing") {
  constexpr int kRanks = 3;
  on_ranks(TransportKind::local, kRanks, [](RankSide& side) {
    const bool joined = side.rank == 0;
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::int8}) {
      for (const ReduceOp op : kReductions) {
        for (const std::size_t pieces : {std::size_t{1}, std::size_t{2}}) {
          auto call = side.call(Collective::allreduce, dtype, op);
          std::vector<Buffer> tensors;
          for (std::size_t p = 0; p < pieces; ++p) {
            tensors.push_back(encode(contribution(op, dtype, side.rank, p, 100), dtype));
          }
          for (Buffer& t : tensors) {
            void* memory = joined ? nullptr : t.data();
            call.pieces.push_back({.input = memory, .output = memory, .elements = 100});
          }
          side.backend->run(call);
          for (std::size_t p = 0; p < pieces && !joined; ++p) {
            side.expect(tensors[p], folded(op, dtype, 1, kRanks, p, 100), call, "joined");
          }
        }
      }
    }
    auto call = side.call(Collective::broadcast, DType::float32);
    call.root = 2;
    Buffer tensor = encode(contribution(ReduceOp::sum, DType::float32, side.rank, 0, 1000), DType::float32);
    void* memory = joined ? nullptr : tensor.data();
    call.pieces.push_back({.input = memory, .output = memory, .elements = 1000});
    side.backend->run(call);
    if (!joined) side.expect(tensor, contribution(ReduceOp::sum, DType::float32, 2, 0, 1000), call, "joined");
  });
}

TEST_CASE("what one rank declines has changed nothing, and is right when all ask") {
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp);
  const int ranks = GENERATE(2, 4, 9);
  const std::size_t elements = GENERATE(0U, 1U, 28U, 29U, 1000U);  // up to 28, in the payloads of votes
  CAPTURE(transport_name(kind), ranks, elements);
  on_ranks(kind, ranks, [elements](RankSide& side) {
    for (const bool in_place : {false, true}) {
      for (int decliner = 0; decliner < side.set.size(); ++decliner) {
        std::vector<float> values(elements, static_cast<float>(side.rank + 1)), separate(elements, -1.0F);
        std::vector<float>& result = in_place ? values : separate;
        const std::vector<float> values_before = values, result_before = result;
        auto call = side.call(Collective::allreduce, DType::float32);
        call.entry = EntryMode::asking;
        call.prescale = 2.0;
        call.pieces = {{.input = values.data(), .output = result.data(), .elements = std::ssize(values)}};
        bool declined = false;
        try {
          side.rank == decliner ? side.backend->decline(side.set, call.call_id) : side.backend->run(call);
        } catch (const Declined&) {
          declined = true;
        }
        if (declined != (side.rank != decliner)) throw Internal("was not declined");
        if (values != values_before || result != result_before) throw Internal("has changed something");
        side.backend->run(call);
        const auto sum = static_cast<float>(side.set.size() * (side.set.size() + 1));
        if (result != std::vector<float>(elements, sum)) throw Internal("wrong sum");
      }
    }
  });
}
