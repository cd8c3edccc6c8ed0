#include "core/base/abort_flag.h"

#include <future>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("a fresh flag says nothing") {
  const AbortFlag flag;
  CHECK_FALSE(flag.raised());
  CHECK(flag.reason().ok());
  CHECK_NOTHROW(flag.check());
}

TEST_CASE("the first reason wins") {
  AbortFlag flag;
  CHECK(flag.raise(Status(StatusCode::peer_lost, "rank 2")));
  CHECK_FALSE(flag.raise(Status(StatusCode::timeout, "later")));
  CHECK(flag.raised());
  CHECK(flag.reason() == Status(StatusCode::peer_lost, "rank 2"));
  try {
    flag.check();
    FAIL("a raised flag let a wait go on");
  } catch (const Error& error) {
    CHECK(error.status() == Status(StatusCode::peer_lost, "rank 2"));
  }
}

TEST_CASE("of many threads exactly one is first, and its reason stands") {
  AbortFlag flag;
  std::vector<std::future<bool>> threads;
  for (int i = 0; i < 8; ++i) {
    threads.push_back(std::async(std::launch::async,
                                 [&flag, i] { return flag.raise(Status(StatusCode::aborted, std::to_string(i))); }));
  }
  std::string winner;
  int first = 0;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (!threads[i].get()) continue;
    ++first;
    winner = std::to_string(i);
  }
  CHECK(first == 1);
  CHECK(flag.reason().message() == winner);
}

TEST_CASE("who is to be told is told before anybody can see the flag, by the first only") {
  AbortFlag flag;
  int told = 0;
  bool was_seen = false;
  const auto tell = [&](const Status& reason) {
    ++told;
    was_seen = flag.raised() || reason.message() != "first";
  };
  CHECK(flag.raise(Status(StatusCode::peer_lost, "first"), tell));
  CHECK_FALSE(flag.raise(Status(StatusCode::peer_lost, "second"), tell));
  CHECK(told == 1);
  CHECK_FALSE(was_seen);
}
