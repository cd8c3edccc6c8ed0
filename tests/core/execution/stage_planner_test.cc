#include "core/execution/bucket_planner.h"

#include <string>
#include <vector>

#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

// Responses by their tensors' bytes; the plan as "0 1|2 / 2": two stages, the first of two buckets.
std::string plan(const std::vector<std::vector<std::vector<std::int64_t>>>& groups) {
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

TEST_CASE("stages") {
  CHECK(plan({}).empty());
  CHECK(plan({{{10}, {10}}}) == "01=2");
  CHECK(plan({{{10}}, {{10}}}) == "0=1 / 1=1");       // groups are not fused with each other
  CHECK(plan({{{60}, {60}, {10}}}) == "0=1 / 12=2");  // what does not fit is a stage of its own
  CHECK(plan({{{60, 60}, {10}}}) == "0|01=2");        // one operation in two buckets
  CHECK(plan({{{60, 60, 60}, {60, 60}, {10}}}) == "0|0|0=1 / 1|12=2");
}
