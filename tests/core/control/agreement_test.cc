#include "core/control/protocol/agreement.h"

#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

constexpr int kThree = 3;

OperationSpec with(OperationSpec spec, void (*change)(OperationSpec&)) {
  change(spec);
  return spec;
}

std::string disagreement(const OperationSpec& a, const OperationSpec& b) {
  return find_disagreement(a, 0, b, 2, describe_test_rank);
}

}  // namespace

TEST_CASE("A disagreement names tensor, operation, both ranks and both values") {
  const OperationSpec reduce = allreduce("grad");
  struct Row {
    OperationSpec first;
    OperationSpec other;
    const char* text;
  };
  const Row rows[] = {
      {reduce, allreduce("grad", {2, 4}), "has shape [2, 3], but rank 2 on host-c shape [2, 4]"},
      {reduce, allreduce("grad", {2}), "has shape [2, 3], but rank 2 on host-c shape [2]"},
      {reduce, with(reduce, [](OperationSpec& r) { r.tensors[0].dtype = DType::float64; }),
       "has dtype float32, but rank 2 on host-c dtype float64"},
      {reduce, with(reduce, [](OperationSpec& r) { r.tensors.push_back(r.tensors[0]); }),
       "has 1 tensors, but rank 2 on host-c 2 tensors"},
      {reduce, make_spec(Collective::broadcast, "grad"), "asks for allreduce, but rank 2 on host-c broadcast"},
      {reduce, with(reduce, [](OperationSpec& r) { r.op = ReduceOp::min; }),
       "has reduce op sum, but rank 2 on host-c min"},
      {reduce, with(reduce, [](OperationSpec& r) { r.prescale = 0.25; }),
       "has prescale factor 1, but rank 2 on host-c 0.25"},
      {reduce, with(reduce, [](OperationSpec& r) { r.postscale = 0.5; }),
       "has postscale factor 1, but rank 2 on host-c 0.5"},
      {reduce, with(reduce, [](OperationSpec& r) { r.device = 0; }),
       "has its tensors on the CPU, but rank 2 on host-c an accelerator"},
  };
  for (const Row& row : rows) {
    CHECK(disagreement(row.first, row.other) ==
          "allreduce 'grad': the ranks disagree: rank 0 on host-a " + std::string(row.text));
  }
  CHECK(disagreement(broadcast("b", 0), broadcast("b", 1)) ==
        "broadcast 'b': the ranks disagree: rank 0 on host-a has root rank 0 on host-a, but rank 2 on host-c root rank "
        "1 on host-b");
  CHECK_THAT(disagreement(allgather("g", {1, 3}), allgather("g", {1, 4})), Catch::Matchers::Contains("shape [1, 4]"));
  CHECK_THAT(disagreement(allgather("g", {1, 3}), allgather("g", {1})), Catch::Matchers::Contains("shape [1]"));
  CHECK_THAT(disagreement(reducescatter("r", {2}), reducescatter("r", {3})), Catch::Matchers::Contains("shape [3]"));
  OperationSpec group = with(allreduce("grad"), [](OperationSpec& r) { r.tensors.push_back({DType::int8, {5}}); });
  const OperationSpec other = with(group, [](OperationSpec& r) { r.tensors[1].shape = {6}; });
  CHECK_THAT(disagreement(group, other), Catch::Matchers::Contains("has as tensor 1 of the group shape [5]"));
}

TEST_CASE("What may differ by rank, or means nothing to the collective, is no disagreement") {
  CHECK(disagreement(allreduce("x"), allreduce("x")).empty());
  CHECK(disagreement(allgather("g", {1, 3}), allgather("g", {8, 3})).empty());
  CHECK(disagreement(alltoall("a", {1, 2, 3}), alltoall("a", {0, 0, 1})).empty());
  CHECK(disagreement(allreduce("x"), with(allreduce("x"), [](OperationSpec& r) { r.root = 1; })).empty());
  CHECK(
      disagreement(broadcast("b", 1), with(broadcast("b", 1), [](OperationSpec& r) { r.op = ReduceOp::max; })).empty());
  CHECK(disagreement(barrier("b"), with(barrier("b"), [](OperationSpec& r) { r.device = 0; })).empty());
}

TEST_CASE("A request can be wrong by itself") {
  struct Row {
    OperationSpec spec;
    const char* text;
  };
  const Row rows[] = {
      {allreduce("x"), ""},
      {allreduce("x", {}), ""},
      {barrier("x"), ""},
      {broadcast("x", 2), ""},
      {alltoall("x", {1, 0, 2}), ""},
      {allgather("x", {0}), ""},
      {broadcast("x", 3), "names root rank 3, which is not in the process set"},
      {allgather("x", {}), "brings a tensor of no dimensions, and at least one is needed"},
      {reducescatter("x", {}), "brings a tensor of no dimensions, and at least one is needed"},
      {make_spec(Collective::alltoall, "x", {}), "brings a tensor of no dimensions, and at least one is needed"},
      {alltoall("x", {1, 2}), "gives 2 splits for 3 ranks"},
      {with(alltoall("x", {1, 2, 3}),
            [](OperationSpec& r) {
              r.splits = {1, 1, 1};
            }),
       "gives splits whose sum is 3 for a first dimension of 6"},
      {with(alltoall("x", {1, 2, 3}),
            [](OperationSpec& r) {
              r.splits = {7, -1, 0};
            }),
       "gives a negative split"},
      {with(alltoall("x", {1, 2, 3}),
            [](OperationSpec& r) {
              r.splits = {INT64_MAX, 1, 0};
            }),
       "gives splits whose sum overflows"},
      {with(alltoall("x", {1, 2, 3}), [](OperationSpec& r) { r.tensors.push_back(r.tensors[0]); }),
       "brings 2 tensors to an alltoall"},
      {with(allreduce("x"), [](OperationSpec& r) { r.tensors.clear(); }), "brings no tensor"},
      {with(allreduce("x"), [](OperationSpec& r) { r.collective = Collective::barrier; }),
       "brings a tensor to a barrier"},
  };
  for (const Row& row : rows) {
    const std::string text = find_fault(row.spec, kThree, 1, describe_test_rank);
    if (*row.text == '\0') {
      CHECK(text.empty());
    } else {
      CHECK(text == operation_text(row.spec.collective, "x") + ": rank 1 on host-b " + row.text);
    }
  }
}

TEST_CASE("Ranks that have joined can be left out where their neutral elements stay neutral") {
  struct Row {
    ReduceOp op;
    double prescale;
    bool tolerates;
  };
  const Row rows[] = {{ReduceOp::sum, 1.0, true},     {ReduceOp::sum, 0.5, true},    {ReduceOp::average, 0.5, true},
                      {ReduceOp::adasum, 1.0, true},  {ReduceOp::adasum, 0.5, true}, {ReduceOp::min, 1.0, true},
                      {ReduceOp::min, 0.5, false},    {ReduceOp::max, 0.5, false},   {ReduceOp::product, 1.0, true},
                      {ReduceOp::product, 2.0, false}};
  for (const Row& row : rows) {
    for (OperationSpec spec : {allreduce("x"), reducescatter("x", {2})}) {
      spec.op = row.op;
      spec.prescale = row.prescale;
      CAPTURE(reduce_op_name(row.op), row.prescale);
      CHECK(tolerates_joined(spec) == row.tolerates);
    }
  }
  for (const OperationSpec& spec : {barrier("b"), broadcast("b", 0), allgather("b", {1}), alltoall("b", {1})}) {
    CHECK(tolerates_joined(spec));
  }
}

TEST_CASE("An agreement gives each rank's request back, and rows by rank") {
  Agreement gather(3, allgather("g", {4, 2}));
  gather.add(RankSet(2), allgather("g", {4, 2}));
  gather.add(RankSet(0), allgather("g", {0, 2}));
  CHECK(gather.request_of(RankSet(0)).spec == allgather("g", {0, 2}));
  CHECK(gather.request_of(RankSet(2)).spec == allgather("g", {4, 2}));
  CHECK_FALSE(gather.asked().contains(1));
  const SharedRequest both = gather.request_of(gather.asked());
  CHECK(both.spec == allgather("g", {0, 2}));
  CHECK(request_of(RankSet(2), gather.asked(), both).spec == allgather("g", {4, 2}));
  CHECK(gather.response().spec == allgather("g", {0, 2}));
  CHECK(gather.response().contributing == 2);
  CHECK(gather.response().rows == std::vector<std::vector<std::int64_t>>{{0, 0, 4}});

  Agreement exchange(2, alltoall("a", {1, 2}));
  exchange.add(RankSet(0), alltoall("a", {1, 2}));
  exchange.add(RankSet(1), alltoall("a", {0, 5}));
  CHECK(exchange.request_of(RankSet(1)).spec == alltoall("a", {0, 5}));
  CHECK(exchange.response().rows == std::vector<std::vector<std::int64_t>>{{1, 2}, {0, 5}});
  CHECK(find_overflow(exchange.response()).empty());
}

TEST_CASE("A result beyond 2^63 bytes is noticed though each part is within") {
  const std::int64_t huge = std::int64_t{1} << 60;
  Agreement gather(2, allgather("g", {huge}));
  gather.add(RankSet(0), allgather("g", {huge}));
  gather.add(RankSet(1), allgather("g", {huge}));
  CHECK_FALSE(find_overflow(gather.response()).empty());

  OperationSpec half = alltoall("a", {huge, 0});
  half.tensors[0] = {DType::int8, {huge, 4}};
  Agreement exchange(2, half);
  exchange.add(RankSet(0), half);
  exchange.add(RankSet(1), half);
  CHECK_FALSE(find_overflow(exchange.response()).empty());
}
