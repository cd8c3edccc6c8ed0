#include "launcher/processes/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

FileDescriptor ready_event() { return FileDescriptor(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }

TEST_CASE("a descriptor that takes the number of a closed one gets none of its events") {
  EventLoop loop;
  std::array<FileDescriptor, 2> events = {ready_event(), ready_event()};
  int first_called = -1, called_for_new = 0;
  for (const int own : {0, 1}) {
    loop.watch(events[static_cast<std::size_t>(own)].get(), EPOLLIN, [&, own] {
      REQUIRE(first_called < 0);
      first_called = own;
      FileDescriptor& other = events[static_cast<std::size_t>(1 - own)];
      const int number = other.get();
      loop.forget(number);
      other.reset();
      other = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      REQUIRE(other.get() == number);
      loop.watch(number, EPOLLIN, [&] { ++called_for_new; });
    });
  }
  loop.run_once(deadline_after(60s));
  CHECK(first_called >= 0);
  CHECK(called_for_new == 0);
  const std::uint64_t one = 1;
  const FileDescriptor& renewed = events[static_cast<std::size_t>(1 - first_called)];
  REQUIRE(write(renewed.get(), &one, sizeof one) == sizeof one);
  loop.forget(events[static_cast<std::size_t>(first_called)].get());
  loop.run_once(deadline_after(60s));
  CHECK(called_for_new == 1);
}

TEST_CASE("a timer that another one puts off is not called") {
  EventLoop loop;
  int calls = 0;
  Timer* timers[2] = {};
  const auto put_the_other_off = [&](int own) {
    ++calls;
    timers[1 - own]->set(deadline_after(60s));
  };
  Timer first(loop, [&] { put_the_other_off(0); }), second(loop, [&] { put_the_other_off(1); });
  timers[0] = &first;
  timers[1] = &second;
  first.set(Clock::now());
  second.set(Clock::now());
  loop.run_once(deadline_after(60s));
  CHECK(calls == 1);
}

}  // namespace
}  // namespace hvd::launcher
