#include "ops/plugin/plugin_backend.h"

#include <atomic>
#include <memory>
#include <thread>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

constexpr WaitPolicy kNoSpin{};

}  // namespace

TEST_CASE("watched thread: what is to be done is done before run() returns, on another thread") {
  WatchedThread thread("test", kNoSpin);
  const AbortFlag abort;
  int done = 0;
  std::thread::id where;
  for (int i = 0; i < 1000; ++i) {
    thread.run(
        [&] {
          ++done;
          where = std::this_thread::get_id();
        },
        deadline_after(30s), abort, "counting");
    REQUIRE(done == i + 1);
  }
  CHECK(where != std::this_thread::get_id());
  CHECK_FALSE(thread.lost());
}

TEST_CASE("watched thread: what is thrown there is thrown here, and it goes on") {
  WatchedThread thread("test", kNoSpin);
  const AbortFlag abort;
  CHECK_THROWS_AS(thread.run([] { throw PeerLost("rank 3"); }, deadline_after(30s), abort, ""), Error);
  CHECK_THROWS_WITH(thread.run([] { throw std::runtime_error("no hvd error"); }, deadline_after(30s), abort, ""),
                    Catch::Matchers::Contains("no hvd error"));
  int done = 0;
  thread.run([&] { ++done; }, deadline_after(30s), abort, "");
  CHECK(done == 1);
}

TEST_CASE("watched thread: who never returns is left to himself") {
  const auto released = std::make_shared<std::atomic<bool>>(false);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto hang = [released, ended] {
    while (!*released) std::this_thread::sleep_for(1ms);
    *ended = true;
  };
  const AbortFlag quiet;
  {
    WatchedThread thread("test", kNoSpin);
    CHECK_THROWS_WITH(thread.run(hang, deadline_after(50ms), quiet, "waiting for Godot"), "waiting for Godot");
    CHECK(thread.lost());
  }
  {
    AbortFlag abort;
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      abort.raise(Status(StatusCode::peer_lost, "rank 1 is gone"));
    });
    WatchedThread thread("test", kNoSpin);
    const TimePoint began = Clock::now();
    CHECK_THROWS_WITH(thread.run(hang, deadline_after(60s), abort, ""), "rank 1 is gone");
    CHECK(Clock::now() - began < 30s);
    CHECK(thread.lost());
    other.join();
  }
  *released = true;
  while (!*ended) std::this_thread::sleep_for(1ms);
}

TEST_CASE("watched thread: a call that ends soon after the job was given up is no loss") {
  AbortFlag abort;
  abort.raise(Status(StatusCode::aborted, "enough"));
  WatchedThread thread("test", kNoSpin);
  CHECK_THROWS_WITH(thread.run([] { std::this_thread::sleep_for(100ms); }, deadline_after(30s), abort, ""), "enough");
  CHECK_FALSE(thread.lost());
}

}  // namespace hvd::testing
