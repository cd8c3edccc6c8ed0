// The end of an operation on a device, as its callers see it.
#include "core/device/device_completion.h"

#include <thread>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd {

namespace {

struct Event final : DeviceEvent {
  bool happened() const override {
    if (fails) throw Aborted("the device has failed");
    return is_over;
  }
  void hold_up(void*) const override { ++held_up; }
  bool precedes(const DeviceEvent&) const override { return false; }

  std::atomic<bool> is_over{false};
  std::atomic<bool> fails{false};
  mutable std::atomic<int> held_up{0};
};

}  // namespace

TEST_CASE("an operation on a device is done when its event has happened") {
  const auto event = std::make_shared<Event>();
  DeviceCompletion completion(event);
  CHECK_FALSE(completion.done());
  CHECK_FALSE(completion.wait(deadline_after(1ms)));
  std::thread device([&] { event->is_over = true; });
  CHECK(completion.wait(deadline_after(1min)));
  device.join();
  CHECK(completion.status().ok());
  completion.give_up(Status(StatusCode::timeout, "too late"));
  CHECK(completion.status().ok());
}

TEST_CASE("an operation that was given up has failed, whatever the device does then") {
  const auto event = std::make_shared<Event>();
  DeviceCompletion completion(event);
  std::thread engine([&] { completion.give_up(Status(StatusCode::peer_lost, "rank 1 is gone")); });
  CHECK(completion.wait(deadline_after(1min)));
  engine.join();
  event->is_over = true;
  CHECK(completion.done());
  CHECK(completion.status() == Status(StatusCode::peer_lost, "rank 1 is gone"));
  CHECK_THROWS_AS(completion.hold_up(nullptr), Error);
  CHECK(event->held_up == 0);
}

TEST_CASE("a device that fails ends the operation with its error") {
  const auto event = std::make_shared<Event>();
  DeviceCompletion completion(event);
  event->fails = true;
  CHECK(completion.wait(deadline_after(1min)));
  CHECK(completion.status() == Status(StatusCode::aborted, "the device has failed"));
}

TEST_CASE("a stream is held up as long as the operation is open") {
  const auto event = std::make_shared<Event>();
  DeviceCompletion completion(event);
  completion.hold_up(nullptr);
  CHECK(event->held_up == 1);
}

}  // namespace hvd
