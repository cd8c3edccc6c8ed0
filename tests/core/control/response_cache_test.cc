#include "core/control/protocol/response_cache.h"

#include "core/base/error.h"
#include "core/control/protocol/wire.h"
#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

std::shared_ptr<const Response> response_to(std::uint32_t slot, OperationSpec spec) {
  auto response = std::make_shared<Response>();
  response->slot = slot;
  response->spec = std::move(spec);
  return response;
}

}  // namespace

TEST_CASE("A repetition of the own request is found, anything else is not") {
  ResponseCache cache;
  const OperationSpec own = allgather("x", {4, 3});
  cache.store(response_to(2, allgather("x", {9, 3})), &own);
  CHECK(cache.find(own) == 2u);
  CHECK(cache.at(2)->spec == allgather("x", {9, 3}));

  CHECK_FALSE(cache.find(allgather("x", {9, 3})));  // what another rank wrote
  CHECK_FALSE(cache.find(allgather("y", {4, 3})));
  const std::vector<void (*)(OperationSpec&)> changes = {
      [](OperationSpec& r) { r.process_set = 1; },
      [](OperationSpec& r) { r.op = ReduceOp::max; },
      [](OperationSpec& r) { r.prescale = 2; },
      [](OperationSpec& r) { r.postscale = 2; },
      [](OperationSpec& r) { r.device = 0; },
      [](OperationSpec& r) { r.root = 1; },
      [](OperationSpec& r) { r.splits = {4}; },
      [](OperationSpec& r) { r.collective = Collective::allreduce; },
      [](OperationSpec& r) { r.tensors[0].dtype = DType::int8; },
      [](OperationSpec& r) { r.tensors.push_back(r.tensors[0]); },
  };
  for (const auto change : changes) {
    OperationSpec other = own;
    change(other);
    CHECK_FALSE(cache.find(other));
  }
}

TEST_CASE("A slot that is replaced forgets what it held") {
  ResponseCache cache;
  const OperationSpec x = allreduce("x");
  const OperationSpec y = allreduce("y");
  cache.store(response_to(0, x), &x);
  const auto in_use = cache.at(0);
  cache.store(response_to(0, y), &y);
  CHECK_FALSE(cache.find(x));
  CHECK(cache.find(y) == 0u);
  CHECK(in_use->spec == x);  // still there for who holds it
}

TEST_CASE("A name that moves to another slot survives the end of the old one") {
  ResponseCache cache;
  const OperationSpec x = allreduce("x");
  const OperationSpec y = allreduce("y");
  cache.store(response_to(0, x), &x);
  cache.store(response_to(1, x), &x);
  cache.store(response_to(0, y), &y);
  CHECK(cache.find(x) == 1u);
  CHECK(cache.find(y) == 0u);
}

TEST_CASE("What a joined rank stores without a request of its own is there, but no hit") {
  ResponseCache cache;
  const OperationSpec x = allreduce("x");
  cache.store(response_to(0, x), &x);
  cache.store(response_to(0, allreduce("x", {7})), nullptr);
  CHECK_FALSE(cache.find(x));
  CHECK_FALSE(cache.find(allreduce("x", {7})));
  CHECK(cache.at(0)->spec == allreduce("x", {7}));
}

TEST_CASE("Slots that cannot be are refused") {
  ResponseCache cache;
  const OperationSpec x = allreduce("x");
  CHECK_THROWS_AS(cache.at(0), Internal);
  CHECK_THROWS_AS(cache.store(response_to(kMaxCacheSlots, x), &x), Internal);
  cache.store(response_to(3, x), &x);
  CHECK_THROWS_AS(cache.at(2), Internal);
  CHECK_THROWS_AS(cache.at(4), Internal);
}
