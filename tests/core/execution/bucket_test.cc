// Buckets: how tensors are put together, how buckets are arranged in stages, and what becomes of one at a rank that has
// the operation, and at one that has joined.
#include "core/execution/bucket.h"

#include <memory>
#include <random>
#include <set>
#include <string>

#include "core/base/error.h"
#include "core/operation/operation.h"
#include "tests/core/control/specs.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

using namespace hvd;

namespace {

// Plans for requests and writes the plan as the indices of the responses: "0 2|1" is {0, 2} and {1}.
std::string plan(const std::vector<OperationSpec>& specs, std::int64_t threshold) {
  std::vector<Response> responses(specs.size());
  std::vector<const Response*> executes;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    responses[i].spec = specs[i];
    executes.push_back(&responses[i]);
  }
  std::string text;
  for (const Bucket& bucket : plan_buckets(executes, threshold)) {
    if (!text.empty()) text += "|";
    std::string separator;
    for (const Bucket::Item& item : bucket.items) {
      text += separator + std::to_string(item.response - responses.data());
      if (item.response->spec.tensors.size() > 1) text += "." + std::to_string(item.tensor);
      separator = " ";
    }
  }
  return text;
}

OperationSpec of(std::int64_t floats) { return allreduce("x", {floats}); }

OperationSpec with(OperationSpec spec, void (*change)(OperationSpec&)) {
  change(spec);
  return spec;
}

OperationSpec group(std::vector<TensorSpec> tensors) {
  OperationSpec spec = of(1);
  spec.tensors = std::move(tensors);
  return spec;
}

}  // namespace

TEST_CASE("Buckets") {
  const OperationSpec integer = with(of(1), [](OperationSpec& r) { r.tensors[0].dtype = DType::int32; });
  struct Row {
    const char* what;
    std::vector<OperationSpec> specs;
    std::int64_t threshold;
    const char* plan;
  };
  const Row rows[] = {
      {"nothing", {}, 100, ""},
      {"all fit", {of(1), of(2), of(3)}, 24, "0 1 2"},
      {"one byte too few", {of(1), of(2), of(3)}, 23, "0 1|2"},
      {"threshold zero", {of(1), of(0), of(0)}, 0, "0|1|2"},
      {"no size at all", {of(0), of(0), of(1)}, 4, "0 1 2"},
      {"above the threshold, alone, and the bucket before stays open", {of(1), of(100), of(1)}, 8, "0 2|1"},
      {"exactly the threshold", {of(2), of(1), of(1)}, 8, "0|1 2"},
      {"past another kind", {of(1), integer, of(1), integer}, 64, "0 2|1 3"},
      {"past another collective", {of(1), broadcast("b", 0), of(1)}, 64, "0 2|1"},
      {"reduce op", {of(1), with(of(1), [](OperationSpec& r) { r.op = ReduceOp::max; })}, 64, "0|1"},
      {"prescale", {of(1), with(of(1), [](OperationSpec& r) { r.prescale = 2; })}, 64, "0|1"},
      {"postscale", {of(1), with(of(1), [](OperationSpec& r) { r.postscale = 2; })}, 64, "0|1"},
      {"device", {of(1), with(of(1), [](OperationSpec& r) { r.device = 0; })}, 64, "0|1"},
      {"process set", {of(1), with(of(1), [](OperationSpec& r) { r.process_set = 1; })}, 64, "0|1"},
      {"a group and its neighbours",
       {of(1), group({{DType::float32, {1}}, {DType::int32, {1}}, {DType::float32, {}}}), of(1)},
       64,
       "0 1.0 1.2 2|1.1"},
      {"a group is split by the threshold", {group({{DType::float32, {2}}, {DType::float32, {2}}})}, 8, "0.0|0.1"},
      {"other collectives",
       {allgather("g", {1}), allgather("g", {1}), alltoall("a", {1}), reducescatter("r", {1}), barrier("b")},
       64,
       "0|1|2|3|4"},
      {"a group of another collective",
       {with(allgather("g", {1}), [](OperationSpec& r) { r.tensors.push_back(r.tensors[0]); })},
       64,
       "0.0|0.1"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    CHECK(plan(row.specs, row.threshold) == row.plan);
  }
}

TEST_CASE("What fewer ranks contribute to is another kind") {
  std::vector<Response> responses(3);
  std::vector<const Response*> executes;
  for (Response& response : responses) {
    response.spec = of(1);
    response.contributing = 4;
    executes.push_back(&response);
  }
  responses[1].contributing = 3;
  const std::vector<Bucket> buckets = plan_buckets(executes, 64);
  REQUIRE(buckets.size() == 2);
  CHECK(buckets[0].items.size() == 2);
  CHECK(buckets[1].items.front().response == &responses[1]);
}

TEST_CASE("More kinds than stay open are planned all the same") {
  std::vector<OperationSpec> specs;
  for (int pass = 0; pass < 2; ++pass) {
    for (int kind = 0; kind < 20; ++kind) {
      specs.push_back(of(1));
      specs.back().prescale = kind;
    }
  }
  std::vector<Response> responses(specs.size());
  std::vector<const Response*> executes;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    responses[i].spec = specs[i];
    executes.push_back(&responses[i]);
  }
  std::size_t items = 0;
  for (const Bucket& bucket : plan_buckets(executes, 1000)) items += bucket.items.size();
  CHECK(items == specs.size());
}

TEST_CASE("Every tensor lands in one bucket, buckets are uniform, within the threshold, in order, and repeatable") {
  std::mt19937 random(3);
  const Collective kinds[] = {Collective::allreduce, Collective::allreduce, Collective::allreduce,
                              Collective::allgather, Collective::broadcast, Collective::barrier};
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Response> responses(random() % 40);
    std::vector<const Response*> executes;
    for (Response& response : responses) {
      response.spec = make_spec(kinds[random() % 6], "x", {static_cast<std::int64_t>(random() % 30)});
      response.spec.prescale = static_cast<double>(random() % 2);
      for (TensorSpec& tensor : response.spec.tensors) tensor.dtype = static_cast<DType>(random() % 3 + 5);
      while (!response.spec.tensors.empty() && random() % 3 == 0) {
        response.spec.tensors.push_back({DType::float32, {static_cast<std::int64_t>(random() % 30)}});
      }
      executes.push_back(&response);
    }
    const std::int64_t threshold = static_cast<std::int64_t>(random() % 200);
    const auto buckets = plan_buckets(executes, threshold);
    std::set<std::pair<const Response*, std::size_t>> seen;
    std::pair<const Response*, std::size_t> previous{nullptr, 0};
    for (const Bucket& bucket : buckets) {
      REQUIRE_FALSE(bucket.items.empty());
      const std::pair first{bucket.items.front().response, bucket.items.front().tensor};
      CHECK(previous < first);
      previous = first;
      std::int64_t bytes = 0;
      for (const Bucket::Item& item : bucket.items) {
        CHECK(seen.insert({item.response, item.tensor}).second);
        const OperationSpec& spec = item.response->spec;
        CHECK(spec.collective == bucket.spec().collective);
        CHECK(spec.prescale == bucket.spec().prescale);
        if (spec.collective == Collective::barrier) continue;
        const TensorSpec& tensor = spec.tensors[item.tensor];
        CHECK(tensor.dtype == bucket.spec().tensors[bucket.items.front().tensor].dtype);
        bytes += elements_of(tensor.shape) * static_cast<std::int64_t>(size_of(tensor.dtype));
      }
      if (bucket.items.size() > 1) {
        CHECK(bytes <= threshold);
        CHECK(bucket.spec().collective == Collective::allreduce);
      }
    }
    std::size_t tensors = 0;
    for (const Response& response : responses) {
      tensors += response.spec.collective == Collective::barrier ? 1 : response.spec.tensors.size();
    }
    CHECK(seen.size() == tensors);
    const auto again = plan_buckets(executes, threshold);
    REQUIRE(again.size() == buckets.size());
    for (std::size_t i = 0; i < again.size(); ++i) CHECK(again[i].items.size() == buckets[i].items.size());
  }
}

namespace {

// Responses by their tensors' bytes; the plan as "0 1|2 / 2": two stages, the first of two buckets.
std::string stages(const std::vector<std::vector<std::vector<std::int64_t>>>& groups) {
  std::vector<std::vector<Response>> responses;
  std::vector<std::vector<const Response*>> pointers;
  std::uint32_t slot = 0;
  for (const auto& group : groups) {
    auto& made = responses.emplace_back();
    for (const auto& tensors : group) {
      Response& response = made.emplace_back();
      response.slot = slot++;
      response.spec = allreduce("x");
      response.spec.tensors.clear();
      for (const std::int64_t bytes : tensors) response.spec.tensors.push_back({DType::uint8, {bytes}});
    }
  }
  for (const auto& group : responses) {
    pointers.emplace_back();
    for (const Response& response : group) pointers.back().push_back(&response);
  }
  std::string text;
  for (const Stage& stage : plan_stages(pointers, 100)) {
    text += text.empty() ? "" : " / ";
    for (const Bucket& bucket : stage) {
      if (&bucket != &stage.front()) text += "|";
      for (const Bucket::Item& item : bucket.items) text += std::to_string(item.response->slot);
    }
    text += "=" + std::to_string(responses_of(stage).size());
  }
  return text;
}

}  // namespace

TEST_CASE("Stages") {
  CHECK(stages({}).empty());
  CHECK(stages({{{10}, {10}}}) == "01=2");
  CHECK(stages({{{10}}, {{10}}}) == "0=1 / 1=1");       // groups are not fused with each other
  CHECK(stages({{{60}, {60}, {10}}}) == "0=1 / 12=2");  // what does not fit is a stage of its own
  CHECK(stages({{{60, 60}, {10}}}) == "0|01=2");        // one operation in two buckets
  CHECK(stages({{{60, 60, 60}, {60, 60}, {10}}}) == "0|0|0=1 / 1|12=2");
}

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
    return build_call({.items = {{&response, own.get()}}}, kThree, 2, divisor);
  }
  CollectiveCall build_of(const Response& response, std::size_t tensor) const {
    return build_call({.items = {{&response, own.get(), tensor}}}, kThree, 2, JoinDivisor::all);
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

TEST_CASE("A result for which there is no memory is named, with its shape") {
  if (testing::kSanitized) return;  // the sanitizers' allocators end the process
  Rank rank;
  rank.submit(allgather("rows", {4}));
  CHECK_THROWS_WITH(rank.build(response_to(allgather("rows", {1}), 2, {{std::int64_t{1} << 58, 0, 4}})),
                    "allgather 'rows': there is no memory for the result float32[288230376151711748]");
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
      {"more ranks contribute than there are", response_to(allreduce("x"), 4)},
      {"a root that is not in the set", response_to(broadcast("x", 3), 2)}};
  for (const auto& [what, response] : joined) {
    CAPTURE(what);
    CHECK_THROWS_AS(Rank().build(response), Internal);
  }
  Rank rank;
  rank.submit(allgather("x", {4}));
  CHECK_THROWS_AS(rank.build(response_to(allgather("x", {5}), 2, {{5, 0, 3}})), Internal);
  const Response pair = response_to(group({{DType::float32, {1}}, {DType::float32, {1}}}), 3);
  Rank of_one;
  of_one.submit(allreduce("x", {1}));
  CHECK_THROWS_AS(of_one.build_of(pair, 1), Internal);
  CHECK_NOTHROW(rank.build(response_to(allgather("x", {5}), 2, {{5, 0, 4}})));
}
