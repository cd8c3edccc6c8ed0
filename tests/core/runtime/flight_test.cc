// What the whole runtime records: operations of every way, ranks as threads.
#include <algorithm>
#include <atomic>
#include <thread>

#include "core/base/error.h"
#include "core/flight/flight_reader.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

RunOptions pair(Environment environment = {}) {
  const Layout layout{{2}};
  return {layout, std::move(environment)};
}

std::span<const std::byte> memory_of(const Runtime& runtime) {
  const SharedMemory& memory = runtime.flight().memory();
  return {memory.data(), memory.size()};
}

std::vector<RecordedOperation> recorded(const Runtime& runtime) { return read_flight_operations(memory_of(runtime)); }

bool stalled(const Runtime& runtime) { return !read_flight_snapshot(memory_of(runtime)).value().stall.empty(); }

CallArguments call_of(std::vector<float>& values, const std::string& name) {
  CallArguments call{.name = name};
  call.inputs = call.outputs = {{.data = values.data(), .shape = {static_cast<std::int64_t>(values.size())}}};
  return call;
}

void wait_until(const std::function<bool()>& condition, const std::string& what) {
  for (const Deadline deadline = deadline_after(60s); !condition();) {
    require(Clock::now() < deadline, what + " did not happen");
    std::this_thread::sleep_for(1ms);
  }
}

TEST_CASE("operations are recorded in their order, with their ends") {
  run_ranks(pair(), [](Runtime& runtime) {
    std::vector<float> values(3);
    for (int step = 0; step < 3; ++step) {
      for (const char* name : {"a", "b"}) perform(runtime, call_of(values, name));
    }
    const auto operations = recorded(runtime);
    require(operations.size() == 6, std::to_string(operations.size()) + " operations");
    for (std::size_t i = 0; i < 6; ++i) {
      const RecordedOperation& one = operations[i];
      require(one.sequence == i + 1 && one.name == (i % 2 == 0 ? "a" : "b"), "number " + std::to_string(one.sequence));
      require(one.state == FlightState::done && one.bytes == 12, one.name + " is not done");
      require(one.submitted <= one.started && one.started <= one.ended, "its times are out of order");
    }
  });
}

TEST_CASE("what a locked schedule performs on the caller's thread is recorded, once") {
  run_ranks(pair(), [](Runtime& runtime) {
    float input = 1, output = 0;
    CallArguments call{.name = "x"};
    call.inputs = {{.data = &input, .shape = {1}}};
    call.outputs = {{.data = &output, .shape = {1}}};
    constexpr std::uint64_t kCalls = 6000;  // more than there is room for; the same on both ranks
    for (std::uint64_t i = 0; i < kCalls; ++i) require(outcome_of_run(runtime, call).ok(), "it failed");
    const auto operations = recorded(runtime);
    require(runtime.metrics().direct_calls.value() > 0, "nothing was performed directly");
    // The record of a call that was declined, because a busy machine kept the other rank away, is forgotten.
    std::uint64_t declined = 0;
    for (const Counter& breaks : runtime.metrics().breaks) declined += breaks.value();
    require(operations.size() <= kFlightRecords && operations.size() + declined >= kFlightRecords,
            "not as many records as there is room for");
    for (std::size_t i = 0; i < operations.size(); ++i) {
      require(operations[i].sequence == kCalls - operations.size() + i + 1, "sequences have gaps");
      require(operations[i].state == FlightState::done && operations[i].name == "x", "not done");
    }
    const FlightSnapshot facts = read_flight_snapshot(memory_of(runtime)).value();
    require(facts.counters.operations == kCalls && facts.counters.locked_steps > 0, "the numbers are wrong");
  });
}

TEST_CASE("a stall shows on every rank, and who is behind does not have the operation") {
  std::atomic<bool> was_seen_waiting{false};
  run_ranks(pair({{"HVD_STALL_CHECK_TIME_SECONDS", "0.2"}, {"HVD_LOG_LEVEL", "off"}}), [&](Runtime& runtime) {
    std::vector<float> values(3);
    CallerReference handle;
    if (runtime.topology().rank == 0) handle = runtime.submit(call_of(values, "late"));
    wait_until([&] { return stalled(runtime); }, "a warning");
    const auto operations = recorded(runtime);
    if (handle) {
      require(operations.size() == 1 && operations[0].state == FlightState::submitted, "it does not wait");
      was_seen_waiting = true;
    } else {
      require(operations.empty(), "it was never submitted here");
      wait_until([&] { return was_seen_waiting.load(); }, "the other rank's look");
      handle = runtime.submit(call_of(values, "late"));
    }
    require(handle->wait(deadline_after(60s)), "it does not end");
    wait_until([&] { return !stalled(runtime); }, "the end of the stall");
  });
}

TEST_CASE("what is open when the job ends is recorded as failed") {
  std::atomic<bool> all_right{false};
  // The closing barrier of run_ranks cannot succeed after somebody has left.
  CHECK_THROWS(run_ranks(pair(), [&](Runtime& runtime) {
    if (runtime.topology().rank == 1) return runtime.shut_down();
    std::vector<float> values(3);
    const bool told = outcome(runtime, call_of(values, "alone")).code() == StatusCode::shut_down;
    const bool refused = outcome(runtime, call_of(values, "too late")).code() == StatusCode::shut_down;
    const auto operations = recorded(runtime);
    all_right = told && refused && operations.size() == 2 &&
                std::all_of(operations.begin(), operations.end(), [](const RecordedOperation& one) {
                  return one.state == FlightState::failed && one.code == StatusCode::shut_down;
                });
  }));
  CHECK(all_right);
}

}  // namespace

}  // namespace hvd::testing
