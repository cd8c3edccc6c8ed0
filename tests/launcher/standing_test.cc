#include "launcher/standing.h"

#include <random>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

constexpr TimePoint kNow{1000s};

RecordedOperation operation(std::uint64_t sequence, FlightState state, Duration ago, int tensors = 1) {
  RecordedOperation one;
  one.number = one.sequence = sequence;
  one.name = "w" + std::to_string(sequence);
  one.shape = {4, 5};
  one.tensors = tensors;
  one.bytes = 80 * tensors;
  one.state = state;
  one.submitted = one.started = kNow - ago;
  if (!one.under_way()) one.ended = one.submitted + 10ms;
  return one;
}

Standing standing_of(const std::vector<RecordedOperation>& operations) {
  return make_standing(FlightFacts(), operations, {}, kNow);
}

TEST_CASE("a standing has what is open, the oldest first, and how far each set has come") {
  auto other = operation(3, FlightState::done, 2s);
  other.process_set = 5;
  const Standing standing =
      standing_of({operation(6, FlightState::done, 3s), other, operation(7, FlightState::performing, 1500ms),
                   operation(8, FlightState::submitted, 1s, 3)});
  REQUIRE(standing.open.size() == 2);
  CHECK(standing.open[0] == StandingOperation{.state = StandingOperation::State::performs,
                                              .sequence = 7,
                                              .what = "allreduce",
                                              .name = "w7",
                                              .shape = "float32[4, 5]",
                                              .age = 1500ms});
  CHECK(standing.open[1].state == StandingOperation::State::waits);
  CHECK(standing.open[1].shape == "3 tensors, 240 bytes");
  CHECK(standing.sets == std::vector<StandingInSet>{{0, 8, 6}, {5, 3, 3}});
  CHECK(standing.since_progress == 1s);
  CHECK_FALSE(standing_of({}).since_progress);
}

TEST_CASE("what a failed job has given up is open; an operation that failed by itself is not") {
  const Standing alone = standing_of({operation(1, FlightState::failed, 3s), operation(2, FlightState::done, 2s)});
  CHECK(alone.open.empty());
  const Standing failed = standing_of({operation(1, FlightState::done, 3s), operation(2, FlightState::failed, 2s)});
  REQUIRE(failed.open.size() == 1);
  CHECK(failed.open[0].state == StandingOperation::State::given_up);
  CHECK(failed.open[0].age == 10ms);
}

TEST_CASE("of many open operations and a long stack the first part is kept") {
  std::vector<RecordedOperation> many;
  for (std::uint64_t i = 1; i <= 100; ++i) many.push_back(operation(i, FlightState::submitted, 1s));
  for (auto& one : many) one.process_set = static_cast<std::int32_t>(one.number);
  const Standing standing =
      make_standing(FlightFacts(), many, {.text = std::string(100'000, 'x'), .package = {}}, kNow);
  CHECK(standing.open.size() == 8);
  CHECK(standing.more_open == 92);
  CHECK(standing.sets.size() == 64);
  CHECK(standing.stack.size() == 16 << 10);
}

Standing full() {
  Standing standing = standing_of({operation(6, FlightState::done, 3s), operation(7, FlightState::performing, 1s)});
  standing.stopped = true;
  standing.operations = 1;
  standing.bytes = 2;
  standing.locked_steps = 3;
  standing.rounds = 4;
  standing.lock_state = 2;
  standing.exposed_time = 5s;
  standing.stall = "stalled";
  standing.frame = PythonFrame{"train.py", 48, "main"};
  standing.stack = "Thread";
  return standing;
}

TEST_CASE("a standing is the same after its way over the network") {
  CHECK(decode_standing(encode(full())) == full());
  CHECK(decode_standing(encode(Standing())) == Standing());
}

TEST_CASE("bytes that are no standing are refused") {
  const std::string bytes = encode(full());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(decode_standing(bytes.substr(0, size)), Internal);
  CHECK_THROWS_AS(decode_standing(bytes + "x"), Internal);
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string changed = bytes;
    for (int j = 0; j < 3; ++j) changed[random() % changed.size()] = static_cast<char>(random());
    try {
      decode_standing(changed);
    } catch (const Internal&) {
    }
  }
}

}  // namespace
}  // namespace hvd::launcher
