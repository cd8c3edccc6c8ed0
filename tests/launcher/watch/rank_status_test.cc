#include "launcher/watch/rank_status.h"

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

RankStatus status_of(const std::vector<RecordedOperation>& operations) {
  return make_rank_status(FlightSnapshot(), operations, {}, kNow);
}

TEST_CASE("a status has what is open, the oldest first, and how far each set has come") {
  auto other = operation(3, FlightState::done, 2s);
  other.process_set = 5;
  const RankStatus status =
      status_of({operation(6, FlightState::done, 3s), other, operation(7, FlightState::performing, 1500ms),
                 operation(8, FlightState::submitted, 1s, 3)});
  REQUIRE(status.open.size() == 2);
  CHECK(status.open[0] == OperationStatus{.state = OperationStatus::State::performs,
                                          .sequence = 7,
                                          .what = "allreduce",
                                          .name = "w7",
                                          .shape = "float32[4, 5]",
                                          .age = 1500ms});
  CHECK(status.open[1].state == OperationStatus::State::waits);
  CHECK(status.open[1].shape == "3 tensors, 240 bytes");
  CHECK(status.sets == std::vector<ProcessSetStatus>{{0, 8, 6}, {5, 3, 3}});
  CHECK(status.since_progress == 1s);
  CHECK_FALSE(status_of({}).since_progress);
}

TEST_CASE("what a failed job has given up is open; an operation that failed by itself is not") {
  const RankStatus alone = status_of({operation(1, FlightState::failed, 3s), operation(2, FlightState::done, 2s)});
  CHECK(alone.open.empty());
  const RankStatus failed = status_of({operation(1, FlightState::done, 3s), operation(2, FlightState::failed, 2s)});
  REQUIRE(failed.open.size() == 1);
  CHECK(failed.open[0].state == OperationStatus::State::given_up);
  CHECK(failed.open[0].age == 10ms);
}

TEST_CASE("of many open operations and a long stack the first part is kept") {
  std::vector<RecordedOperation> many;
  for (std::uint64_t i = 1; i <= 100; ++i) many.push_back(operation(i, FlightState::submitted, 1s));
  for (auto& one : many) one.process_set = static_cast<std::int32_t>(one.number);
  const RankStatus status =
      make_rank_status(FlightSnapshot(), many, {.text = std::string(100'000, 'x'), .package = {}}, kNow);
  CHECK(status.open.size() == 8);
  CHECK(status.more_open == 92);
  CHECK(status.sets.size() == 64);
  CHECK(status.stack.size() == 16 << 10);
}

RankStatus full() {
  RankStatus status = status_of({operation(6, FlightState::done, 3s), operation(7, FlightState::performing, 1s)});
  status.stopped = true;
  status.operations = 1;
  status.bytes = 2;
  status.locked_steps = 3;
  status.rounds = 4;
  status.lock_state = 2;
  status.exposed_time = 5s;
  status.stall = "stalled";
  status.frame = PythonFrame{"train.py", 48, "main"};
  status.stack = "Thread";
  return status;
}

TEST_CASE("a status is the same after its way over the network") {
  CHECK(decode_rank_status(encode(full())) == full());
  CHECK(decode_rank_status(encode(RankStatus())) == RankStatus());
}

TEST_CASE("bytes that are no status are refused") {
  const std::string bytes = encode(full());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(decode_rank_status(bytes.substr(0, size)), Internal);
  CHECK_THROWS_AS(decode_rank_status(bytes + "x"), Internal);
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string changed = bytes;
    for (int j = 0; j < 3; ++j) changed[random() % changed.size()] = static_cast<char>(random());
    try {
      decode_rank_status(changed);
    } catch (const Internal&) {
    }
  }
}

}  // namespace
}  // namespace hvd::launcher
