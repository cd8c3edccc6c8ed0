#include "simulation/processor.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::simulation;

TEST_CASE("The model charges for messages, requests, hits and bytes") {
  Costs costs{};
  costs[static_cast<std::size_t>(Work::receive)] = {.message = 1000, .request = 10, .hit = 1, .byte = 0.5};
  ModelProcessor processor(costs);
  const auto time = [&](Work work, Amount amount) { return processor.perform(work, [&] { return amount; }); };
  CHECK(time(Work::receive, {.messages = 2, .requests = 3, .hits = 4, .bytes = 10}) == 2039ns);
  CHECK(time(Work::apply, {.messages = 2}) == 0ns);
  CHECK(time(Work::receive, {}) == 0ns);
  CHECK(processor.total() == 2039ns);
}

TEST_CASE("What is measured yields a model that says about the same") {
  Stopwatch stopwatch;
  volatile double sink = 0;
  const auto burn = [&](std::size_t times) {
    for (std::size_t i = 0; i < times * 200; ++i) sink = sink + std::sqrt(static_cast<double>(i));
  };
  Duration largest{};
  for (int repetition = 0; repetition < 20; ++repetition) {
    for (const std::size_t requests : {1u, 100u, 1000u}) {
      largest = stopwatch.perform(Work::apply, [&] {
        burn(requests);
        return Amount{.messages = 1, .requests = requests};
      });
    }
  }
  const Costs costs = stopwatch.fit();
  const double predicted = costs[static_cast<std::size_t>(Work::apply)].of({.messages = 1, .requests = 1000});
  const auto measured = static_cast<double>(std::chrono::nanoseconds(largest).count());
  CHECK(predicted > measured / 4);
  CHECK(predicted < measured * 4);
  CHECK(costs[static_cast<std::size_t>(Work::receive)].of({.messages = 1, .requests = 1000}) == 0);
}
