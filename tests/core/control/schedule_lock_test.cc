#include "core/control/schedule/schedule_lock.h"

#include "tests/support/catch.h"

using namespace hvd;

using State = ScheduleLock::State;
using Kind = ScheduleLock::Action::Kind;
using Cause = ScheduleLock::Cause;

namespace {

ScheduleLock proposed() {
  ScheduleLock lock;
  lock.propose(7, {{4, 2}, {0}});
  return lock;
}

}  // namespace

TEST_CASE("schedule lock: stages are performed in their order, when all their operations have been submitted") {
  ScheduleLock lock = proposed();
  CHECK(lock.state() == State::propose);
  CHECK(lock.number() == 7);
  CHECK(lock.next(false).kind == Kind::wait);
  CHECK(lock.submitted(0));  // of the second stage
  CHECK(lock.next(false).kind == Kind::wait);
  CHECK(lock.submitted(2));
  CHECK(lock.next(false).kind == Kind::wait);
  CHECK(lock.submitted(4));
  CHECK(lock.next(false).kind == Kind::perform);
  CHECK(lock.next(false).stage == 0);
  lock.performed();
  CHECK(lock.state() == State::locked);
  CHECK(lock.steps() == 0);
  CHECK(lock.submitted(4));  // of the next step already
  CHECK(lock.next(false).stage == 1);
  lock.performed();
  CHECK(lock.steps() == 1);
  CHECK(lock.next(false).kind == Kind::wait);
  CHECK(lock.submitted(2));
  CHECK(lock.next(false).stage == 0);
  lock.propose(lock.number() + 1, {{2}});
  CHECK(lock.steps() == 0);
  CHECK(lock.steps_of_all_locks() == 1);
}

TEST_CASE("schedule lock: what is not in the schedule is told apart") {
  ScheduleLock lock = proposed();
  CHECK_FALSE(lock.submitted(1));
  CHECK_FALSE(lock.submitted(3));
  CHECK_FALSE(lock.submitted(1000));
}

TEST_CASE("schedule lock: who is asked to break declines, even if it could perform") {
  ScheduleLock lock = proposed();
  lock.submitted(2);
  lock.submitted(4);
  CHECK(lock.next(true).kind == Kind::decline);
  CHECK(lock.state() == State::propose);
  lock.ended();
  CHECK(lock.state() == State::learn);
  CHECK(lock.cause() == Cause::none);
  CHECK(lock.next(true).kind == Kind::wait);
}

TEST_CASE("schedule lock: the first cause counts, and a stage under way does not end the wish") {
  ScheduleLock lock = proposed();
  lock.submitted(2);
  lock.submitted(4);
  lock.request_end(Cause::late);
  lock.request_end(Cause::leaving);
  CHECK(lock.cause() == Cause::late);
  CHECK(lock.state() == State::breaking);
  lock.performed();
  CHECK(lock.state() == State::breaking);
  CHECK(lock.next(false).kind == Kind::decline);
}

TEST_CASE("schedule lock: a new proposal begins anew") {
  ScheduleLock lock = proposed();
  lock.submitted(2);
  lock.request_end(Cause::order);
  lock.ended();
  lock.propose(9, {{2}});
  CHECK(lock.state() == State::propose);
  CHECK(lock.cause() == Cause::none);
  CHECK(lock.number() == 9);
  CHECK_FALSE(lock.submitted(4));
  CHECK(lock.next(false).kind == Kind::wait);
  CHECK(lock.submitted(2));
  CHECK(lock.next(false).kind == Kind::perform);
}
