// Allreduce over several hosts whose ranks are threads: host windows inside, a local transport between.
#include "ops/host/two_level_backend.h"

#include <mutex>
#include <string>

#include "tests/ops/algorithms/element_values.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const std::vector<int> kLayouts[] = {{2, 2}, {1, 3}, {2, 1, 3}, {3, 1}};

struct Side {
  explicit Side(HostRank& host_rank)
      : self(host_rank), backend(self.group, self.transport, self.topology, 20s, choose_by_size(true)) {
    for (int rank = 0; rank < self.size; ++rank) set.ranks.push_back(rank);
  }

  // The tensors of one allreduce, in place.
  void allreduce(const Reduction& reduction, std::vector<Buffer*> tensors, bool joined = false) {
    CollectiveCall call;
    call.dtype = reduction.dtype;
    call.op = reduction.op;
    call.prescale = reduction.prescale;
    call.postscale = reduction.postscale;
    call.set = &set;
    call.sequence = sequence++;
    for (Buffer* buffer : tensors) {
      void* memory = joined ? nullptr : buffer->data();
      call.pieces.push_back({memory, memory, static_cast<std::int64_t>(buffer->size() / size_of(call.dtype))});
    }
    require(backend.score(call) == 50, "the backend does not want the call");
    backend.run(call);
  }

  HostRank& self;
  TwoLevelBackend backend;
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
void check_small(Side& side, const Reduction& reduction, const std::vector<std::int64_t>& sizes, bool last_joined) {
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

}  // namespace

TEST_CASE("two levels: every type and operation") {
  const auto layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  on_host_ranks({.ranks_by_host = layout}, [](HostRank& self) {
    Side side(self);
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
        Side side(self);
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
      Side side(self);
      CollectiveCall call;
      call.set = &side.set;
      require(side.backend.score(call) == 0, "one host, or one rank on each");
    });
  }
  on_host_ranks({.ranks_by_host = {2, 1}}, [](HostRank& self) {
    Side side(self);
    CollectiveCall call;
    call.set = &side.set;
    require(side.backend.score(call) == 50, "two levels");
    call.op = ReduceOp::adasum;
    require(side.backend.score(call) == 0, "no adasum");
    call.op = ReduceOp::sum;
    call.collective = Collective::broadcast;
    require(side.backend.score(call) == 0, "allreduce only");
    const ProcessSet part{.id = 1, .ranks = {0, 2}};
    call.collective = Collective::allreduce;
    call.set = &part;
    require(side.backend.score(call) == 0, "the global set only");
  });
}
