#include "core/execution/bucket_planner.h"

#include <random>
#include <set>

#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

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
