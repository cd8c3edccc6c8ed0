// What becomes of negotiated responses at a rank that has the operation, and at one that has joined.
#include "core/execution/call_builder.h"

#include <memory>

#include "core/base/error.h"
#include "core/operation/operation.h"
#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

using Rows = std::vector<std::vector<std::int64_t>>;

const ProcessSet kThree{.id = 0, .ranks = {0, 1, 2}};

Response response_to(OperationSpec spec, std::int32_t contributing, Rows rows = {}) {
  Response response;
  response.spec = std::move(spec);
  response.contributing = contributing;
  response.rows = std::move(rows);
  return response;
}

// What rank 2 is to do. With a request of its own it has submitted it.
struct Rank {
  CollectiveCall build(const Response& response, JoinDivisor divisor = JoinDivisor::all) const {
    return build_call({.items = {{&response, 0, own.get()}}}, kThree, 2, divisor);
  }
  void submit(OperationSpec spec) {
    own = std::make_unique<Operation>(nullptr);
    own->memory.tensors = {{.input = memory.data(), .output = memory.data()}};
    own->memory.allocates_outputs = has_outputs_of_its_own(spec.collective);
    own->spec = std::move(spec);
  }
  static bool has_outputs_of_its_own(Collective collective) {
    return collective != Collective::allreduce && collective != Collective::broadcast;
  }

  std::unique_ptr<Operation> own;
  std::vector<float> memory = std::vector<float>(100);
};

}  // namespace

TEST_CASE("A rank that has joined has nothing to give and nowhere to put what comes") {
  struct Row {
    Response response;
    std::int64_t elements;
    Rows counts;
  };
  const Row rows[] = {
      {response_to(allreduce("x", {2, 3}), 2), 6, {}},
      {response_to(broadcast("x", 1), 1), 6, {}},
      {response_to(reducescatter("x", {4, 2}), 2), 8, {{4, 2, 2}}},
      {response_to(allgather("x", {5, 2}), 2, {{5, 1, 0}}), 0, {{10, 2, 0}}},
      {response_to(alltoall("x", {1, 2, 0}), 2, {{1, 2, 0}, {3, 4, 0}, {0, 0, 0}}),
       0,
       {{4, 8, 0}, {12, 16, 0}, {0, 0, 0}}},
  };
  for (const Row& row : rows) {
    CAPTURE(collective_name(row.response.spec.collective));
    const CollectiveCall call = Rank().build(row.response);
    REQUIRE(call.pieces.size() == 1);
    CHECK(call.pieces[0].input == nullptr);
    CHECK(call.pieces[0].output == nullptr);
    CHECK(call.pieces[0].elements == row.elements);
    CHECK(call.counts == row.counts);
  }
}

TEST_CASE("A call without memory is the same as one with it, but for the addresses") {
  OperationSpec average = allreduce("x", {2, 3});
  average.op = ReduceOp::average;
  average.prescale = 0.5;
  for (const OperationSpec& spec : {average, broadcast("x", 1)}) {
    CAPTURE(collective_name(spec.collective));
    const Response response = response_to(spec, 3);
    Rank rank;
    rank.submit(spec);
    const CollectiveCall with = rank.build(response);
    const CollectiveCall without = build_call_without_memory({.items = {{&response, 0}}}, kThree, JoinDivisor::all);
    CHECK(without.collective == with.collective);
    CHECK(without.op == with.op);
    CHECK(without.root == with.root);
    CHECK(without.prescale == with.prescale);
    CHECK(without.postscale == with.postscale);
    CHECK(without.dtype == with.dtype);
    CHECK(without.device == with.device);
    CHECK(without.set == with.set);
    REQUIRE(without.pieces.size() == 1);
    CHECK(without.pieces[0].elements == with.pieces[0].elements);
    CHECK(without.pieces[0].input == nullptr);
    CHECK(without.pieces[0].output == nullptr);
  }
}

TEST_CASE("Outputs leave out the rows of ranks that have joined") {
  Rank gathers;
  gathers.submit(allgather("x", {4, 2}));
  const CollectiveCall gather = gathers.build(response_to(allgather("x", {5, 2}), 2, {{5, 0, 4}}));
  CHECK(gather.pieces[0].elements == 8);
  CHECK(gathers.own->memory.outputs.at(0).shape == Shape{9, 2});

  Rank exchanges;
  exchanges.submit(alltoall("x", {0, 2, 1}));
  exchanges.build(response_to(alltoall("x", {0, 2, 1}), 2, {{0, 0, 0}, {0, 1, 6}, {0, 2, 1}}));
  CHECK(exchanges.own->memory.outputs.at(0).shape == Shape{7, 4});
  CHECK(exchanges.own->completion.received_splits == std::vector<std::int64_t>{0, 6, 1});

  Rank scatters;
  scatters.submit(reducescatter("x", {7, 2}));
  scatters.build(response_to(reducescatter("x", {7, 2}), 1));
  CHECK(scatters.own->memory.outputs.at(0).shape == Shape{2, 2});
}

TEST_CASE("What an average is divided by") {
  struct Row {
    ReduceOp op;
    JoinDivisor divisor;
    std::int32_t contributing;
    double postscale;
  };
  const Row rows[] = {{ReduceOp::average, JoinDivisor::all, 3, 2.0 / 3},
                      {ReduceOp::average, JoinDivisor::all, 1, 2.0 / 3},
                      {ReduceOp::average, JoinDivisor::contributing, 3, 2.0 / 3},
                      {ReduceOp::average, JoinDivisor::contributing, 2, 1.0},
                      {ReduceOp::average, JoinDivisor::contributing, 1, 2.0},
                      {ReduceOp::sum, JoinDivisor::contributing, 2, 2.0},
                      {ReduceOp::adasum, JoinDivisor::contributing, 2, 2.0}};
  for (const Row& row : rows) {
    for (OperationSpec spec : {allreduce("x"), reducescatter("x", {6})}) {
      CAPTURE(reduce_op_name(row.op), row.contributing, collective_name(spec.collective));
      spec.op = row.op;
      spec.postscale = 2.0;
      const CollectiveCall call = Rank().build(response_to(spec, row.contributing), row.divisor);
      CHECK(call.postscale == row.postscale);
      CHECK(call.op == (row.op == ReduceOp::average ? ReduceOp::sum : row.op));
    }
  }
}

TEST_CASE("Factors are taken in the type that numbers are computed in, the divisor of an average is not") {
  constexpr double kTenth = 0.1f;
  struct Row {
    DType dtype;
    double factor;
  };
  for (const Row& row : {Row{DType::float32, kTenth}, Row{DType::float16, kTenth}, Row{DType::bfloat16, kTenth},
                         Row{DType::float64, 0.1}, Row{DType::int32, 0.1}, Row{DType::int64, 0.1}}) {
    for (OperationSpec spec : {allreduce("x"), reducescatter("x", {6})}) {
      CAPTURE(dtype_name(row.dtype), collective_name(spec.collective));
      spec.tensors[0].dtype = row.dtype;
      spec.prescale = spec.postscale = 0.1;
      const CollectiveCall sum = Rank().build(response_to(spec, 3));
      CHECK(sum.prescale == row.factor);
      CHECK(sum.postscale == row.factor);
      spec.op = ReduceOp::average;
      CHECK(Rank().build(response_to(spec, 3)).postscale == row.factor / 3);
    }
  }
}

TEST_CASE("A response that does not fit the set or this rank is refused") {
  const std::pair<const char*, Response> joined[] = {
      {"rows of a joined rank", response_to(allgather("x", {5}), 2, {{5, 0, 1}})},
      {"rows from a joined rank", response_to(alltoall("x", {0, 0, 0}), 2, {{0, 0, 0}, {0, 0, 0}, {1, 0, 0}})},
      {"rows for a joined rank", response_to(alltoall("x", {0, 0, 1}), 2, {{0, 0, 1}, {0, 0, 0}, {0, 0, 0}})},
      {"a joined root", response_to(broadcast("x", 2), 2)},
      {"rows for another number of ranks", response_to(allgather("x", {5}), 2, {{5, 0}})},
      {"nobody contributes", response_to(allreduce("x"), 0)},
      {"more ranks contribute than there are", response_to(allreduce("x"), 4)}};
  for (const auto& [what, response] : joined) {
    CAPTURE(what);
    CHECK_THROWS_AS(Rank().build(response), Internal);
  }
  Rank rank;
  rank.submit(allgather("x", {4}));
  CHECK_THROWS_AS(rank.build(response_to(allgather("x", {5}), 2, {{5, 0, 3}})), Internal);
  CHECK_NOTHROW(rank.build(response_to(allgather("x", {5}), 2, {{5, 0, 4}})));
}
