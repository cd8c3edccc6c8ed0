// Every collective x type x operation x number of ranks x size through shared memory, bit by bit against a plain loop.
#include "ops/host/collectives.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "tests/ops/algorithms/element_values.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

using Counts = std::vector<std::int64_t>;

const Counts kSizes{0, 1, 3, 1000, 5003};  // the last spans chunks for every type

// One rank with a backend; makes calls and compares.
struct Side {
  explicit Side(HostRank& host_rank) : self(host_rank), backend(make_host_backend(self.context, self.topology)) {
    for (int rank = 0; rank < self.size; ++rank) set.ranks.push_back(rank);
  }

  CollectiveCall call(Collective collective, const Reduction& reduction) {
    CollectiveCall made;
    made.collective = collective;
    made.dtype = reduction.dtype;
    made.op = reduction.op;
    made.prescale = reduction.prescale;
    made.postscale = reduction.postscale;
    made.set = &set;
    return made;
  }

  void run(const CollectiveCall& c) {
    require(backend->score(c) == 100, "the backend does not want the call");
    backend->run(c);
  }

  void expect(const Buffer& actual, const Buffer& expected, const CollectiveCall& c, const std::string& what) {
    require(actual.size() == expected.size() && has_bytes(actual.data(), expected), [&] {
      return std::string(collective_name(c.collective)) + " of " + dtype_name(c.dtype) + " with " +
             reduce_op_name(c.op) + " on " + std::to_string(self.size) + " ranks, " + what;
    });
  }

  HostRank& self;
  std::unique_ptr<Backend> backend;
  ProcessSet set;
};

std::string text(const Counts& sizes) {
  std::string all = "sizes";
  for (const auto size : sizes) all += " " + std::to_string(size);
  return all;
}

// Rank `joined` has no tensors.
void check_allreduce(Side& side, const Reduction& reduction, const Counts& sizes, bool in_place, int joined = -1) {
  auto call = side.call(Collective::allreduce, reduction);
  const bool away = side.self.rank == joined;
  std::vector<Buffer> inputs, outputs;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    inputs.push_back(tensor(reduction.dtype, sizes[p], side.self.rank, p));
    outputs.emplace_back(inputs.back().size());
  }
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    void* output = in_place ? inputs[p].data() : outputs[p].data();
    call.pieces.push_back({away ? nullptr : inputs[p].data(), away ? nullptr : output, sizes[p]});
  }
  side.run(call);
  if (away) return;
  // The joined rank is the last one: the others' reduction is that of fewer ranks.
  const int ranks = joined < 0 ? side.self.size : side.self.size - 1;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    side.expect(in_place ? inputs[p] : outputs[p], reduced(reduction, sizes[p], ranks, p), call,
                text(sizes) + (in_place ? ", in place" : "") + (joined < 0 ? "" : ", one joined"));
  }
}

void check_reducescatter(Side& side, const Reduction& reduction, const Counts& sizes, bool in_place) {
  auto call = side.call(Collective::reducescatter, reduction);
  const int ranks = side.self.size;
  const std::size_t size = size_of(reduction.dtype);
  std::vector<Buffer> inputs, outputs;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    call.counts.emplace_back();  // uneven: more for the lower ranks
    std::int64_t left = sizes[p];
    for (int rank = 0; rank < ranks; ++rank) {
      call.counts.back().push_back(rank == ranks - 1 ? left : left / 2);
      left -= call.counts.back().back();
    }
    inputs.push_back(tensor(reduction.dtype, sizes[p], side.self.rank, p));
    outputs.emplace_back(inputs.back().size());
  }
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    call.pieces.push_back({inputs[p].data(), in_place ? inputs[p].data() : outputs[p].data(), sizes[p]});
  }
  side.run(call);
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    std::size_t first = 0;
    for (int rank = 0; rank < side.self.rank; ++rank) {
      first += static_cast<std::size_t>(call.counts[p][static_cast<std::size_t>(rank)]) * size;
    }
    const auto bytes = static_cast<std::size_t>(call.counts[p][static_cast<std::size_t>(side.self.rank)]) * size;
    const Buffer whole = reduced(reduction, sizes[p], ranks, p);
    const Buffer& out = in_place ? inputs[p] : outputs[p];
    side.expect(Buffer(out.data(), out.data() + bytes), Buffer(whole.data() + first, whole.data() + first + bytes),
                call, text(sizes) + (in_place ? ", in place" : ""));
  }
}

void check_broadcast(Side& side, DType dtype, const Counts& sizes, int root, bool in_place) {
  auto call = side.call(Collective::broadcast, {.dtype = dtype});
  call.root = root;
  std::vector<Buffer> inputs, outputs;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    inputs.push_back(tensor(dtype, sizes[p], side.self.rank, p));
    outputs.emplace_back(inputs.back().size());
  }
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    call.pieces.push_back({inputs[p].data(), in_place ? inputs[p].data() : outputs[p].data(), sizes[p]});
  }
  side.run(call);
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    side.expect(in_place ? inputs[p] : outputs[p], tensor(dtype, sizes[p], root, p), call,
                text(sizes) + ", root " + std::to_string(root));
  }
}

// In place: what this rank gives lies in the output already, where it belongs.
void check_allgather(Side& side, DType dtype, std::int64_t unit, bool in_place) {
  auto call = side.call(Collective::allgather, {.dtype = dtype});
  std::vector<Buffer> inputs, expected(2), outputs;
  std::vector<std::size_t> local_offsets;
  for (std::size_t p = 0; p < 2; ++p) {
    call.counts.emplace_back();
    for (int rank = 0; rank < side.self.size; ++rank) {
      const std::int64_t count = (rank + static_cast<int>(p)) % 3 * unit;
      call.counts.back().push_back(count);
      const Buffer part = tensor(dtype, count, rank, p);
      if (rank == side.self.rank) {
        inputs.push_back(part);
        local_offsets.push_back(expected[p].size());
      }
      expected[p].insert(expected[p].end(), part.begin(), part.end());
    }
    outputs.emplace_back(expected[p].size());
  }
  for (std::size_t p = 0; p < 2; ++p) {
    const std::int64_t own = call.counts[p][static_cast<std::size_t>(side.self.rank)];
    std::byte* input = inputs[p].data();
    if (in_place) {
      std::copy(inputs[p].begin(), inputs[p].end(), outputs[p].data() + local_offsets[p]);
      input = outputs[p].data() + local_offsets[p];
    }
    call.pieces.push_back({input, outputs[p].data(), own});
  }
  side.run(call);
  for (std::size_t p = 0; p < 2; ++p) {
    side.expect(outputs[p], expected[p], call, "unit " + std::to_string(unit) + (in_place ? ", in place" : ""));
  }
}

void check_alltoall(Side& side, DType dtype, std::int64_t unit, bool in_place) {
  auto call = side.call(Collective::alltoall, {.dtype = dtype});
  Buffer input, expected;
  for (int source = 0; source < side.self.size; ++source) {
    call.counts.emplace_back();
    for (int destination = 0; destination < side.self.size; ++destination) {
      const std::int64_t count = (source + destination) % 3 * unit;  // symmetric: as much in as out
      call.counts.back().push_back(count);
      const Buffer part = tensor(dtype, count, source, static_cast<std::size_t>(destination));
      if (source == side.self.rank) input.insert(input.end(), part.begin(), part.end());
      if (destination == side.self.rank) expected.insert(expected.end(), part.begin(), part.end());
    }
  }
  Buffer output(expected.size());
  const auto elements = static_cast<std::int64_t>(input.size() / size_of(dtype));
  call.pieces.push_back({input.data(), in_place ? input.data() : output.data(), elements});
  side.run(call);
  side.expect(in_place ? input : output, expected, call,
              "unit " + std::to_string(unit) + (in_place ? " in place" : ""));
}

// With slices of their own, and claimed ones.
void on_both_kinds(int ranks, const std::function<void(Side&)>& body) {
  for (const int cpus : {64, 1}) {
    on_host_ranks({.ranks_by_host = {ranks}, .cpus = cpus}, [&](HostRank& self) {
      Side side(self);
      body(side);
    });
  }
}

}  // namespace

TEST_CASE("host: reductions of every type, operation and size") {
  const int ranks = GENERATE(from_range(std::begin(kRankCounts), std::end(kRankCounts)));
  CAPTURE(ranks);
  on_both_kinds(ranks, [](Side& side) {
    for (const DType dtype : kAllTypes) {
      for (const ReduceOp op : kReductions) {
        if (!reduction_exists(dtype, op)) continue;
        const Reduction reduction{.dtype = dtype, .op = op};
        for (const std::int64_t size : kSizes) check_allreduce(side, reduction, {size}, size % 2 == 0);
        check_allreduce(side, reduction, kSizes, true);
        check_allreduce(side, reduction, kSizes, false);
        check_reducescatter(side, reduction, {1000}, false);
        check_reducescatter(side, reduction, kSizes, false);
        check_reducescatter(side, reduction, kSizes, true);
        if (side.self.size > 1) check_allreduce(side, reduction, kSizes, false, side.self.size - 1);
      }
    }
  });
}

TEST_CASE("host: scaled reductions are rounded once") {
  const int ranks = GENERATE(1, 2, 4);
  on_both_kinds(ranks, [](Side& side) {
    for (const DType dtype : {DType::int32, DType::float16, DType::bfloat16, DType::float32}) {
      const Reduction reduction{.dtype = dtype, .prescale = 0.3, .postscale = 1.0 / side.self.size};
      check_allreduce(side, reduction, kSizes, true);
      check_reducescatter(side, reduction, kSizes, false);
    }
  });
}

TEST_CASE("host: movements of every type and size") {
  const int ranks = GENERATE(from_range(std::begin(kRankCounts), std::end(kRankCounts)));
  CAPTURE(ranks);
  on_both_kinds(ranks, [](Side& side) {
    for (const DType dtype : kAllTypes) {
      for (const std::int64_t size : kSizes) {
        check_allgather(side, dtype, size, false);
        check_allgather(side, dtype, size, true);
        check_alltoall(side, dtype, size, false);
        check_alltoall(side, dtype, size, true);
      }
      for (int root = 0; root < side.self.size; ++root) check_broadcast(side, dtype, kSizes, root, root % 2 == 0);
    }
  });
}

TEST_CASE("host: movements of much data, while chunks and reading are tried and afterwards") {
  const int ranks = GENERATE(2, 3, 4);
  if (kSanitized && ranks == 4) return;
  on_both_kinds(ranks, [](Side& side) {
    for (int call = 0; call < 12; ++call) {  // so many that each way of moving it has been tried
      const bool in_place = call % 3 == 0;
      check_allgather(side, DType::float32, 40'000, in_place);
      if (!kSanitized) check_allgather(side, DType::float64, 150'000, in_place);  // so large that parts are written
      check_alltoall(side, DType::int16, 40'000, in_place);
      check_broadcast(side, DType::float64, {20'000, 0, 7}, call % side.self.size, in_place);
    }
  });
}

TEST_CASE("host: outputs that bypass the caches hold the same bits") {
  constexpr std::int64_t kElements = kStreamingBytes / 8 + 3;
  on_both_kinds(2, [](Side& side) {
    for (int call = 0; call < 5; ++call) {  // the fifth at the latest is streamed
      const bool in_place = call % 2 == 0;
      check_allgather(side, DType::float64, kElements / 2, in_place);
      if (kSanitized) continue;  // takes half a minute otherwise
      check_allreduce(side, {.dtype = DType::float64}, {kElements, 5}, in_place);
      check_reducescatter(side, {.dtype = DType::float64}, {kElements}, in_place);
      check_alltoall(side, DType::float64, kElements / 2, in_place);
      check_broadcast(side, DType::float64, {kElements, 7}, 1, in_place);
    }
  });
}

TEST_CASE("host: a joined root has no memory to read, and stands for zeros") {
  on_host_ranks({.ranks_by_host = {3}}, [](HostRank& self) {
    for (int call = 0; call < 12; ++call) {
      Buffer data = tensor(DType::float32, 100'000, self.rank, 0);
      const bool away = self.rank == 1;
      const Piece piece{away ? nullptr : data.data(), away ? nullptr : data.data(), 100'000};
      host_broadcast(*self.context, std::span(&piece, 1), DType::float32, 1);
      require(away || data == Buffer(data.size()), "call " + std::to_string(call));
    }
  });
}

TEST_CASE("host: a long mixture of collectives, across the wrap-around of step numbers") {
  const int ranks = GENERATE(2, 3, 5);
  CAPTURE(ranks);
  for (const int cpus : {64, 1}) {
    on_host_ranks({.ranks_by_host = {ranks}, .cpus = cpus, .chunk_bytes = 1024, .first_step = 0xffffff00u},
                  [&](HostRank& self) {
                    Side side(self);
                    std::minstd_rand random(42);                           // the same choices on every rank
                    for (int i = 0; i < (kSanitized ? 400 : 1500); ++i) {  // the numbers wrap after 256
                      const auto size = static_cast<std::int64_t>(random() % 4 == 0 ? random() % 3000 : random() % 20);
                      const int root = static_cast<int>(random() % static_cast<unsigned>(self.size));
                      switch (random() % 6) {
                        case 0: check_broadcast(side, DType::int16, {size, 3}, root, true); break;
                        case 1: check_allgather(side, DType::uint8, size, false); break;
                        case 2: check_alltoall(side, DType::int32, size, false); break;
                        case 3: check_reducescatter(side, {.dtype = DType::int32}, {size, 7}, false); break;
                        case 4: side.run(side.call(Collective::barrier, {})); break;
                        default: check_allreduce(side, {.dtype = DType::int32}, {2, size}, true);
                      }
                    }
                  });
  }
}

TEST_CASE("host: nobody leaves a barrier before all have come") {
  std::atomic<int> arrived{0};
  for (const int cpus : {64, 1}) {
    arrived = 0;
    on_host_ranks({.ranks_by_host = {4}, .cpus = cpus}, [&](HostRank& self) {
      for (int round = 1; round <= 200; ++round) {
        ++arrived;
        host_barrier(*self.context);
        require(arrived >= round * self.size, "left the barrier too early");
        host_barrier(*self.context);
      }
    });
  }
}

TEST_CASE("host: the backend takes what it can do") {
  on_host_ranks({.ranks_by_host = {2, 1}}, [&](HostRank& self) {
    Side side(self);
    const ProcessSet first{.id = 1, .ranks = {0, 1}}, part{.id = 2, .ranks = {1}}, second{.id = 3, .ranks = {2}};
    const auto score = [&](const ProcessSet& set, auto change) {
      CollectiveCall call = side.call(Collective::allreduce, {});
      call.set = &set;
      change(call);
      return side.backend->score(call);
    };
    const auto as_it_is = [](CollectiveCall&) {};
    require(score(first, as_it_is) == 100 && score(second, as_it_is) == 100, "all ranks of a host");
    require(score(part, as_it_is) == 0, "some ranks of a host");
    require(score(side.set, as_it_is) == 0, "two hosts");
    require(score(first, [](CollectiveCall& c) { c.device = 0; }) == 0, "not on the CPU");
    require(score(first, [](CollectiveCall& c) { c.op = ReduceOp::adasum; }) == 100, "adasum");
    require(score(first, [](CollectiveCall& c) { c.op = ReduceOp::adasum, c.dtype = DType::int64; }) == 0,
            "no adasum of integers");
    require(score(first, [](CollectiveCall& c) { c.dtype = DType::boolean; }) == 0, "no sum of booleans");
    require(score(first, [](CollectiveCall& c) { c.collective = Collective::join; }) == 0, "join");
  });
}

TEST_CASE("host: reductions are done with the instruction set that the backend is given") {
  const bool on_arm = available_instruction_sets().back() == InstructionSet::neon;
  on_host_ranks({}, [&](HostRank& self) {
    Side side(self);
    const auto backend =
        make_host_backend(self.context, self.topology, on_arm ? InstructionSet::avx2 : InstructionSet::neon);
    auto call = side.call(Collective::allreduce, {.postscale = 0.5});
    std::vector<float> values(10);
    call.pieces.push_back({values.data(), values.data(), 10});
    bool refused = false;
    try {
      backend->run(call);
    } catch (const Internal&) {
      refused = true;
    }
    require(refused, "a set that the processor lacks was not refused");
  });
}
