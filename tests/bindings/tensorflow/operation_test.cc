// The kernels of the collectives on the CPU, between TensorFlow's call and its callback.
#include <memory>

#include "tests/bindings/tensorflow/job.h"

namespace hvd::testing {

namespace {

using tf::Code;
using tf::DataType;
using Floats = std::vector<float>;

FakeTensor floats(Dims dims, const Floats& values) { return tensor_of(DataType::float32, std::move(dims), values); }

}  // namespace

TEST_CASE("an op without order has one more input") {
  const Job job;
  const FakeNode node("HvdAllreduce", "CPU", reduction(HVD_SUM, 2));
  FakeRun run(node, {floats({2}, {1, 2}), tensor_of<std::int32_t>(DataType::int32, {}, {0})});
  CHECK(run.run().values<float>(0) == Floats{2, 4});
}

TEST_CASE("allreduces and broadcasts are groups of any types") {
  const Job job;
  const FakeNode allreduce("HvdAllreduceOrdered", "CPU", reduction(HVD_SUM, 1, 0.5));
  FakeRun reduced(allreduce, {floats({2, 2}, {1, 2, 3, 4}), tensor_of<double>(DataType::float64, {}, {8})});
  CHECK(reduced.run().message().empty());
  CHECK(reduced.values<float>(0) == Floats{0.5, 1, 1.5, 2});
  CHECK(reduced.values<double>(1) == std::vector<double>{4});

  const FakeNode broadcast("HvdBroadcastOrdered", "CPU", {{"root_rank", number(0)}, {"tensor_name", text("x")}});
  FakeRun received(broadcast, {tensor_of<std::int64_t>(DataType::int64, {3}, {1, 2, 3}), floats({0}, {})});
  CHECK(received.run().message().empty());
  CHECK(received.values<std::int64_t>(0) == std::vector<std::int64_t>{1, 2, 3});
  CHECK(received.dims(1) == Dims{0});
}

TEST_CASE("results lie in the memory of inputs that nobody else has") {
  const Job job;
  const FakeNode node("HvdAllreduceOrdered", "CPU", reduction(HVD_SUM, 2));
  FakeTensor kept = floats({2}, {1, 2});
  FakeTensor given = floats({2}, {3, 4});
  const void* const memory = given.buffer->data;
  FakeRun run(node, {kept, std::move(given)});
  given = {};
  run.run();
  CHECK(run.has_memory_of(memory, 1));
  CHECK_FALSE(run.has_memory_of(kept.buffer->data, 0));
  CHECK(kept.values<float>() == Floats{1, 2});
  CHECK(run.values<float>(0) == Floats{2, 4});
  CHECK(run.values<float>(1) == Floats{6, 8});
}

TEST_CASE("outputs have the shapes that the operation finds out") {
  const Job job;
  const FakeNode allgather("HvdAllgatherOrdered", "CPU", {});
  FakeRun gathered(allgather, {floats({2, 1}, {1, 2}), floats({0, 5}, {})});
  CHECK(gathered.run().message().empty());
  CHECK(gathered.values<float>(0) == Floats{1, 2});
  CHECK(gathered.dims(0) == Dims{2, 1});
  CHECK(gathered.dims(1) == Dims{0, 5});

  const FakeNode reducescatter("HvdReducescatterOrdered", "CPU", reduction(HVD_SUM, 1, 3));
  FakeRun rows(reducescatter, {floats({2, 1}, {1, 2})});
  CHECK(rows.run().message().empty());
  CHECK(rows.values<float>(0) == Floats{3, 6});
}

TEST_CASE("an alltoall has splits, or equal parts") {
  const Job job;
  const FakeNode node("HvdAlltoallOrdered", "CPU", {});
  for (const std::vector<std::int64_t>& splits : {std::vector<std::int64_t>{2}, std::vector<std::int64_t>{}}) {
    const auto size = static_cast<std::int64_t>(splits.size());
    FakeRun run(node, {floats({2, 1}, {1, 2}), tensor_of(DataType::int64, {size}, splits)});
    CHECK(run.run().message().empty());
    CHECK(run.values<float>(0) == Floats{1, 2});
    CHECK(run.values<std::int32_t>(1) == std::vector<std::int32_t>{2});
  }
  FakeRun wrong(node, {floats({2, 1}, {1, 2}), tensor_of<std::int64_t>(DataType::int64, {}, {2})});
  CHECK(wrong.run().code() == Code::invalid_argument);
  CHECK(wrong.message() == "hvd: splits must have one dimension");
}

TEST_CASE("a barrier has no tensors, and a join says who was last") {
  const Job job;
  const FakeNode barrier("HvdBarrier", "CPU", {});
  CHECK(FakeRun(barrier, {}).run().message().empty());
  const FakeNode join("HvdJoin", "CPU", {});
  FakeRun run(join, {});
  CHECK(run.run().values<std::int32_t>(0) == std::vector<std::int32_t>{0});
}

TEST_CASE("what hvd refuses is the kernel's failure, with hvd's words") {
  REQUIRE(load_ops().empty());
  const FakeNode node("HvdAllreduceOrdered", "CPU", reduction(HVD_SUM));
  {
    FakeRun run(node, {floats({1}, {1})});
    CHECK(run.run().code() == Code::unknown);
    CHECK(run.message().rfind("hvd: ", 0) == 0);
  }
  const Job job;
  const FakeNode elsewhere("HvdAllgatherOrdered", "CPU", {{"process_set", number(9)}});
  CHECK(FakeRun(elsewhere, {floats({1}, {1})}).run().code() == Code::invalid_argument);
  const FakeNode sum_of_flags("HvdAllreduceOrdered", "CPU", reduction(HVD_SUM));
  CHECK(FakeRun(sum_of_flags, {tensor_of<char>(DataType::boolean, {1}, {1})}).run().code() == Code::invalid_argument);
  constexpr auto kText = static_cast<DataType>(7);
  FakeRun text_run(node, {tensor_of<char>(kText, {1}, {'x'})});
  CHECK(text_run.run().message() == "hvd: tensors of this type cannot be moved");
}

TEST_CASE("whatever fails in TensorFlow, the kernel says so once and keeps nothing") {
  const Job job;
  const FakeNode in_place("HvdAllreduceOrdered", "CPU", reduction(HVD_SUM));
  const FakeNode of_any_shape("HvdAllgatherOrdered", "CPU", {});
  const FakeNode alltoall("HvdAlltoallOrdered", "CPU", {});
  const FakeNode join("HvdJoin", "CPU", {});
  const auto fails = [](const FakeNode& node, std::vector<FakeTensor> inputs, const std::string& function, int after) {
    INFO(function << " after " << after);
    fail_in(function, after);
    FakeRun run(node, std::move(inputs));
    CHECK(run.run().code() == kToldToFail);
    CHECK(run.message() == function + " was told to fail");
    nothing_fails();
  };
  for (const int after : {0, 1}) {
    fails(in_place, {floats({1}, {1}), floats({1}, {2})}, "TF_GetInput", after);
    fails(in_place, {floats({1}, {1}), floats({1}, {2})}, "TF_ForwardInputOrAllocateOutput", after);
    fails(of_any_shape, {floats({1}, {1}), floats({1}, {2})}, "TF_SetOutput", after);
    fails(of_any_shape, {floats({0}, {}), floats({0}, {})}, "TF_AllocateOutput", after);
    fails(alltoall, {floats({1}, {1}), tensor_of<std::int64_t>(DataType::int64, {1}, {1})}, "TF_GetInput", after);
  }
  fails(alltoall, {floats({1}, {1}), tensor_of<std::int64_t>(DataType::int64, {1}, {1})}, "TF_AllocateOutput", 0);
  fails(join, {}, "TF_AllocateOutput", 0);
}

TEST_CASE("attributes that cannot be read are the construction's failure") {
  const Job job;
  const Attributes attributes{{"tensor_name", text("x")}, {"root_rank", number(0)}};
  for (const char* kind : {"Int64", "Size", "String"}) {
    const std::string function = std::string("TF_OpKernelConstruction_GetAttr") + kind;
    fail_in(function);
    CHECK(FakeNode("HvdBroadcastOrdered", "CPU", attributes).problem() == function + " was told to fail");
    nothing_fails();
  }
  CHECK(FakeNode("HvdAllreduceOrdered", "CPU", {}).problem() == "reduce_op");
}

TEST_CASE("an executor's thread goes on, and another one calls back") {
  const Job job;
  const FakeNode node("HvdAllreduceOrdered", "CPU", reduction(HVD_SUM, 0.5));
  bool on_another = false;
  for (int attempt = 0; attempt < 100 && !on_another; ++attempt) {
    FakeRun run(node, {floats({1 << 23}, Floats(1 << 23, 1))});
    on_another = run.run().ended_on() != std::this_thread::get_id();
  }
  CHECK(on_another);
}

TEST_CASE("runs of many nodes are under way at once") {
  const Job job;
  const FakeNode allreduce("HvdAllreduceOrdered", "CPU", reduction(HVD_SUM, 2));
  const FakeNode allgather("HvdAllgatherOrdered", "CPU", {});
  std::vector<std::unique_ptr<FakeRun>> runs;
  for (int i = 0; i < 200; ++i) {
    const auto value = static_cast<float>(i);
    runs.push_back(std::make_unique<FakeRun>(i % 2 == 0 ? allreduce : allgather,
                                             std::vector<FakeTensor>{floats({2}, {value, value})}));
    runs.back()->start();
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    REQUIRE(runs[i]->wait());
    const auto value = static_cast<float>(i) * (i % 2 == 0 ? 2.0f : 1.0f);
    CHECK(runs[i]->values<float>(0) == Floats{value, value});
  }
}

}  // namespace hvd::testing
