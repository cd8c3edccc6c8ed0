#include "core/control/protocol/response_cache.h"

#include "core/base/error.h"
#include "core/control/protocol/wire.h"
#include "tests/core/control/requests.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

std::shared_ptr<const Response> response_to(Request request) {
  auto response = std::make_shared<Response>();
  response->request = std::move(request);
  return response;
}

}  // namespace

TEST_CASE("A repetition of the own request is found, anything else is not") {
  ResponseCache cache;
  const Request own = allgather("x", {4, 3});
  cache.store(2, response_to(allgather("x", {9, 3})), &own);
  CHECK(cache.find(own) == 2u);
  CHECK(cache.at(2)->request == allgather("x", {9, 3}));

  CHECK_FALSE(cache.find(allgather("x", {9, 3})));  // what another rank wrote
  CHECK_FALSE(cache.find(allgather("y", {4, 3})));
  const std::vector<void (*)(Request&)> changes = {
      [](Request& r) { r.process_set = 1; },
      [](Request& r) { r.op = ReduceOp::max; },
      [](Request& r) { r.prescale = 2; },
      [](Request& r) { r.postscale = 2; },
      [](Request& r) { r.device = 0; },
      [](Request& r) { r.root = 1; },
      [](Request& r) { r.splits = {4}; },
      [](Request& r) { r.collective = Collective::allreduce; },
      [](Request& r) { r.tensors[0].dtype = DType::int8; },
      [](Request& r) { r.tensors.push_back(r.tensors[0]); },
  };
  for (const auto change : changes) {
    Request other = own;
    change(other);
    CHECK_FALSE(cache.find(other));
  }
}

TEST_CASE("A slot that is replaced forgets what it held") {
  ResponseCache cache;
  const Request x = allreduce("x");
  const Request y = allreduce("y");
  cache.store(0, response_to(x), &x);
  const auto in_use = cache.at(0);
  cache.store(0, response_to(y), &y);
  CHECK_FALSE(cache.find(x));
  CHECK(cache.find(y) == 0u);
  CHECK(in_use->request == x);  // still there for who holds it
}

TEST_CASE("A name that moves to another slot survives the end of the old one") {
  ResponseCache cache;
  const Request x = allreduce("x");
  const Request y = allreduce("y");
  cache.store(0, response_to(x), &x);
  cache.store(1, response_to(x), &x);
  cache.store(0, response_to(y), &y);
  CHECK(cache.find(x) == 1u);
  CHECK(cache.find(y) == 0u);
}

TEST_CASE("What a joined rank stores without a request of its own is there, but no hit") {
  ResponseCache cache;
  const Request x = allreduce("x");
  cache.store(0, response_to(x), &x);
  cache.store(0, response_to(allreduce("x", {7})), nullptr);
  CHECK_FALSE(cache.find(x));
  CHECK_FALSE(cache.find(allreduce("x", {7})));
  CHECK(cache.at(0)->request == allreduce("x", {7}));
}

TEST_CASE("Slots that cannot be are refused") {
  ResponseCache cache;
  const Request x = allreduce("x");
  CHECK_THROWS_AS(cache.at(0), Internal);
  CHECK_THROWS_AS(cache.store(kMaxCacheSlots, response_to(x), &x), Internal);
  cache.store(3, response_to(x), &x);
  CHECK_THROWS_AS(cache.at(2), Internal);
  CHECK_THROWS_AS(cache.at(4), Internal);
}
