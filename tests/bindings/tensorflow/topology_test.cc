// The ops that return this process's rank, the job's size and the like.
#include "tests/bindings/tensorflow/job.h"

namespace hvd::testing {

namespace {

std::int32_t value_of(const std::string& op, Attributes attributes = {}) {
  const FakeNode node(op, "CPU", std::move(attributes));
  REQUIRE(node.problem().empty());
  FakeRun run(node, {});
  CHECK(run.run().message().empty());
  return run.values<std::int32_t>(0).at(0);
}

}  // namespace

TEST_CASE("values of the topology are those of the job when the op runs") {
  const Job job;
  CHECK(value_of("HvdRank") == 0);
  CHECK(value_of("HvdLocalRank") == 0);
  CHECK(value_of("HvdSize") == 1);
  CHECK(value_of("HvdLocalSize") == 1);
  CHECK(value_of("HvdProcessSetIncluded") == 1);
}

TEST_CASE("there is no topology without a job, nor in a set that is not there") {
  REQUIRE(load_ops().empty());
  {
    const FakeNode node("HvdRank", "CPU", {});
    FakeRun run(node, {});
    CHECK(run.run().code() == tf::Code::failed_precondition);
    CHECK(run.message().rfind("hvd: ", 0) == 0);
  }
  const Job job;
  const FakeNode node("HvdSize", "CPU", {{"process_set", number(7)}});
  FakeRun run(node, {});
  CHECK(run.run().code() == tf::Code::invalid_argument);
}

TEST_CASE("a value that TensorFlow has no room for is an error") {
  const Job job;
  fail_in("TF_AllocateOutput");
  const FakeNode node("HvdRank", "CPU", {});
  FakeRun run(node, {});
  CHECK(run.run().message() == "TF_AllocateOutput was told to fail");
  fail_in("TF_OpKernelConstruction_GetAttrInt64");
  CHECK(FakeNode("HvdRank", "CPU", {}).problem() == "TF_OpKernelConstruction_GetAttrInt64 was told to fail");
}

}  // namespace hvd::testing
