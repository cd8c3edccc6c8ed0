// Allreduce over several hosts whose ranks are threads: host windows inside, a local transport between.
#include "ops/two_level/two_level.h"

#include <mutex>
#include <string>

#include "ops/algorithms/transport_backend.h"
#include "ops/choice/algorithm_table.h"
#include "tests/ops/algorithms/element_values.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/link_costs.h"
#include "tests/support/sanitized.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const std::vector<int> kLayouts[] = {{2, 2}, {1, 3}, {2, 1, 3}, {3, 1}};

struct TwoLevelSide {
  explicit TwoLevelSide(HostRank& host_rank, ChooseAllreduce choose_allreduce = AllreduceChoice({kTenGigabit}))
      : self(host_rank),
        votes(make_two_level_vote_exchange(self.context, self.transport, self.topology, 20s)),
        backend(make_two_level_backend(self.context, self.transport, self.topology, votes, 20s,
                                       std::move(choose_allreduce))) {
    for (int rank = 0; rank < self.size; ++rank) set.ranks.push_back(rank);
  }

  // The tensors of one allreduce, in place.
  void allreduce(const Reduction& reduction, const std::vector<Buffer*>& tensors, bool joined = false) {
    std::vector<Piece> pieces;
    for (Buffer* buffer : tensors) {
      void* memory = joined ? nullptr : buffer->data();
      pieces.push_back({memory, memory, static_cast<std::int64_t>(buffer->size() / size_of(reduction.dtype))});
    }
    allreduce_pieces(reduction, std::move(pieces));
  }

  void allreduce_pieces(const Reduction& reduction, std::vector<Piece> pieces) {
    CollectiveCall call;
    call.dtype = reduction.dtype;
    call.op = reduction.op;
    call.prescale = reduction.prescale;
    call.postscale = reduction.postscale;
    call.set = &set;
    call.sequence = sequence++;
    call.pieces = std::move(pieces);
    require(backend->score(call) == 50, "the backend does not want the call");
    backend->run(call);
  }

  HostRank& self;
  std::shared_ptr<VoteExchange> votes;
  std::unique_ptr<Backend> backend;
  ProcessSet set;
  std::uint64_t sequence = 0;
};

std::vector<double> small_values(const Reduction& reduction, int rank, std::size_t piece, std::int64_t elements) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < elements; ++i) {
    values.push_back(small_value(reduction.op, reduction.dtype, rank, piece, static_cast<std::size_t>(i)));
  }
  return values;
}

// Ranks [0, ranks) take part; the last of all may have joined.
void check_small(TwoLevelSide& side, const Reduction& reduction, const std::vector<std::int64_t>& sizes,
                 bool last_joined) {
  const int ranks = side.self.size - (last_joined ? 1 : 0);
  std::vector<Buffer> tensors;
  std::vector<Buffer*> pointers;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    tensors.push_back(encode(small_values(reduction, side.self.rank, p, sizes[p]), reduction.dtype));
  }
  for (Buffer& buffer : tensors) pointers.push_back(&buffer);
  side.allreduce(reduction, pointers, side.self.rank >= ranks);
  if (side.self.rank >= ranks) return;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    auto expected = small_values(reduction, 0, p, sizes[p]);
    for (int rank = 1; rank < ranks; ++rank) {
      const auto values = small_values(reduction, rank, p, sizes[p]);
      for (std::size_t i = 0; i < values.size(); ++i) expected[i] = fold(reduction.op, expected[i], values[i]);
    }
    for (double& value : expected) value *= reduction.prescale * reduction.postscale;
    require(
        decode(tensors[p], reduction.dtype) == expected,
        std::string(dtype_name(reduction.dtype)) + " " + reduce_op_name(reduction.op) + ", piece " + std::to_string(p));
  }
}

struct Bucket {
  Reduction reduction;
  std::vector<std::int64_t> sizes;
};

// What it has to come to, in one go: each host's ranks in rank order, as accumulators; then slice h of every tensor
// from host h+1 on, round to h.
std::vector<Buffer> definition(const Bucket& bucket, const std::vector<int>& ranks_by_host) {
  const DType dtype = bucket.reduction.dtype, accumulator = accumulator_of(dtype);
  Reduction first = bucket.reduction, last = bucket.reduction;
  first.postscale = last.prescale = 1.0;
  const std::size_t hosts = ranks_by_host.size();
  std::vector<Buffer> results;
  for (std::size_t p = 0; p < bucket.sizes.size(); ++p) {
    const auto elements = static_cast<std::size_t>(bucket.sizes[p]);
    std::vector<Buffer> sums;  // by host
    int rank = 0;
    for (const int ranks : ranks_by_host) {
      std::vector<Buffer> tensors;
      std::vector<const void*> inputs;
      for (int i = 0; i < ranks; ++i) tensors.push_back(tensor(dtype, bucket.sizes[p], rank++, p));
      for (const Buffer& one : tensors) inputs.push_back(one.data());
      sums.emplace_back(elements * size_of(accumulator));
      reduce(first, dtype, inputs, accumulator, sums.back().data(), elements);
    }
    results.emplace_back(elements * size_of(dtype));
    std::size_t begin = 0;
    for (std::size_t slice = 0; slice < hosts; ++slice) {
      const std::size_t count = elements / hosts + (slice < elements % hosts ? 1 : 0);
      std::vector<const void*> inputs;
      for (std::size_t i = 1; i <= hosts; ++i) {
        inputs.push_back(sums[(slice + i) % hosts].data() + begin * size_of(accumulator));
      }
      reduce(last, accumulator, inputs, dtype, results.back().data() + begin * size_of(dtype), count);
      begin += count;
    }
  }
  return results;
}

void check_definition(const HostRun& run, AllreduceAlgorithm algorithm, const Bucket& bucket) {
  const auto expected = definition(bucket, run.ranks_by_host);
  on_host_ranks(run, [&](HostRank& self) {
    TwoLevelSide side(self, [algorithm](const AllreduceSize&) { return algorithm; });
    for (const bool in_place : {true, false}) {
      std::vector<Buffer> inputs, outputs;
      std::vector<Piece> pieces;
      for (std::size_t p = 0; p < bucket.sizes.size(); ++p) {
        inputs.push_back(tensor(bucket.reduction.dtype, bucket.sizes[p], self.rank, p));
        outputs.push_back(in_place ? inputs.back() : Buffer(inputs.back().size()));
      }
      for (std::size_t p = 0; p < bucket.sizes.size(); ++p) {
        pieces.push_back({in_place ? outputs[p].data() : inputs[p].data(), outputs[p].data(), bucket.sizes[p]});
      }
      side.allreduce_pieces(bucket.reduction, std::move(pieces));
      require(outputs == expected, std::string("other bits by ") + algorithm_name(algorithm));
    }
  });
}

}  // namespace

TEST_CASE("two levels, overlapped: the bits of doing one after the other, by every algorithm") {
  const auto layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  const auto algorithm = GENERATE(AllreduceAlgorithm::one_shot, AllreduceAlgorithm::bruck, AllreduceAlgorithm::direct,
                                  AllreduceAlgorithm::ring);
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16, DType::float64, DType::int32}) {
    CAPTURE(algorithm_name(algorithm), dtype_name(dtype));
    const Reduction average{.dtype = dtype, .prescale = 0.5, .postscale = 0.3};
    for (const auto& sizes : {std::vector<std::int64_t>{1003}, {5, 0, 1, 1003}, {1}}) {
      check_definition({.ranks_by_host = layout}, algorithm, {.reduction = {.dtype = dtype}, .sizes = sizes});
      check_definition({.ranks_by_host = layout, .cpus = 1}, algorithm, {.reduction = average, .sizes = sizes});
    }
  }
}

TEST_CASE("two levels, overlapped: the same over many portions") {
  const auto layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  const auto dtype = GENERATE(DType::float32, DType::bfloat16);
  if (kSanitized && dtype == DType::bfloat16) return;
  const std::int64_t k = kSanitized ? 250 : 1000;  // of a portion's size, too
  const HostRun run{.ranks_by_host = layout, .chunk_bytes = kSanitized ? 16 << 10 : 64 << 10};
  check_definition(run, AllreduceAlgorithm::ring, {.reduction = {.dtype = dtype}, .sizes = {1500 * k + 7}});
  check_definition(run, AllreduceAlgorithm::ring,
                   {.reduction = {.dtype = dtype}, .sizes = {3, 700 * k + 1, 0, 400 * k}});
  check_definition(run, AllreduceAlgorithm::direct, {.reduction = {.dtype = dtype}, .sizes = {600 * k + 11}});
}

TEST_CASE("two levels: every type and operation") {
  const auto layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  on_host_ranks({.ranks_by_host = layout}, [](HostRank& self) {
    TwoLevelSide side(self);
    for (const DType dtype : kAllTypes) {
      for (const ReduceOp op : kReductions) {
        if (!reduction_exists(dtype, op)) continue;
        check_small(side, {.dtype = dtype, .op = op}, {0, 1, 3, 1000, 5003}, false);
        check_small(side, {.dtype = dtype, .op = op}, {7, 2000}, true);
        check_small(side, {.dtype = dtype, .op = op}, {0}, false);
      }
      if (dtype != DType::boolean) check_small(side, {.dtype = dtype, .prescale = 2, .postscale = 1}, {300}, false);
    }
    check_small(side, {.dtype = DType::float16, .prescale = 0.5, .postscale = 0.25}, {1, 3000}, false);
  });
}

TEST_CASE("two levels: the same bits on every rank, fused or alone") {
  for (const auto& layout : kLayouts) {
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
      std::mutex mutex;
      std::vector<Buffer> results;
      on_host_ranks({.ranks_by_host = layout}, [&](HostRank& self) {
        TwoLevelSide side(self);
        const Reduction reduction{.dtype = dtype, .postscale = 1.0 / self.size};
        Buffer large = tensor(dtype, 4001, self.rank, 0), small = tensor(dtype, 13, self.rank, 1);
        Buffer alone = large;
        side.allreduce(reduction, {&small, &large});
        side.allreduce(reduction, {&alone});
        require(large == alone, "another result when fused");
        const std::lock_guard lock(mutex);
        results.push_back(large);
      });
      for (const Buffer& result : results) CHECK(result == results.front());
    }
  }
}

TEST_CASE("two levels: not where one level is enough") {
  for (const auto& layout : {std::vector<int>{3}, std::vector<int>{1, 1}}) {
    on_host_ranks({.ranks_by_host = layout}, [](HostRank& self) {
      TwoLevelSide side(self);
      CollectiveCall call;
      call.set = &side.set;
      require(side.backend->score(call) == 0, "one host, or one rank on each");
    });
  }
  on_host_ranks({.ranks_by_host = {2, 1}}, [](HostRank& self) {
    TwoLevelSide side(self);
    CollectiveCall call;
    call.set = &side.set;
    require(side.backend->score(call) == 50, "two levels");
    call.op = ReduceOp::adasum;
    require(side.backend->score(call) == 0, "no adasum");
    call.op = ReduceOp::sum;
    call.collective = Collective::broadcast;
    require(side.backend->score(call) == 0, "allreduce only");
    const ProcessSet part{.id = 1, .ranks = {0, 2}};
    call.collective = Collective::allreduce;
    call.set = &part;
    require(side.backend->score(call) == 0, "the global set only");
  });
}

TEST_CASE("two levels: what one rank declines is done by nobody, whichever backend would have done it") {
  const auto layout = GENERATE(values({std::vector<int>{2, 2}, std::vector<int>{2, 1, 3}}));
  CAPTURE(layout);
  on_host_ranks({.ranks_by_host = layout}, [](HostRank& self) {
    TwoLevelSide side(self);
    const auto tcp = make_transport_backend("tcp", self.transport, 20s, AllreduceChoice({kTenGigabit}),
                                            InstructionSet::automatic, side.votes);
    std::uint64_t sequence = 1;
    for (Backend* const backend : {side.backend.get(), tcp.get()}) {
      require(backend->can_be_asked(side.set), "cannot be asked");
      for (int decliner = 0; decliner < self.size; ++decliner, ++sequence) {
        std::vector<float> values(1000, static_cast<float>(self.rank + 1)), result(1000, -1.0F);
        CollectiveCall call;
        call.set = &side.set;
        call.sequence = sequence;
        call.call_id = static_cast<std::uint32_t>(sequence);
        call.entry = EntryMode::asking;
        call.pieces = {{.input = values.data(), .output = result.data(), .elements = 1000}};
        bool declined = false;
        try {
          self.rank == decliner ? side.backend->decline(side.set, call.call_id) : backend->run(call);
        } catch (const Declined&) {
          declined = true;
        }
        require(declined == (self.rank != decliner), "was not declined");
        require(result == std::vector<float>(1000, -1.0F), "has changed something");
        backend->run(call);
        const auto sum = static_cast<float>(self.size * (self.size + 1)) / 2;
        require(result == std::vector<float>(1000, sum), "wrong sum");
      }
    }
  });
}
