// Process sets in the whole runtime, ranks as threads.
#include <algorithm>
#include <barrier>
#include <latch>
#include <thread>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

const std::vector<Layout> kLayoutsOfFour = {{{4}}, {{2, 2}}, {{1, 3}}, {{4}, false}};

float sum_in(Runtime& runtime, std::int32_t set, float own, const std::string& name = "") {
  CallArguments call{.process_set = set, .name = name};
  call.inputs = call.outputs = {{.data = &own, .shape = {}}};
  perform(runtime, call);
  return own;
}

bool is_in(const Runtime& runtime, const std::vector<int>& ranks) {
  return std::find(ranks.begin(), ranks.end(), runtime.topology().rank) != ranks.end();
}

void require_refused(const std::function<void()>& body, StatusCode code, const std::string& words) {
  try {
    body();
  } catch (const Error& error) {
    require(error.code() == code, std::string(status_code_name(error.code())) + ": " + error.what());
    require(std::string(error.what()).find(words) != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("nothing was refused; expected: " + words);
}

}  // namespace

TEST_CASE("a process set reduces over its members") {
  const Layout layout = GENERATE(from_range(kLayoutsOfFour));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const std::int32_t even = runtime.sets().add({2, 0}), odd = runtime.sets().add({1, 3});
    const std::int32_t three = runtime.sets().add({0, 1, 3}), alone = runtime.sets().add({2});
    require(even == 1 && odd == 2 && three == 3 && alone == 4, "other numbers");
    require(runtime.sets().all().size() == 5, "not all are listed");
    require(runtime.sets().all()[1].ranks == std::vector<int>{0, 2}, "not in order");
    const auto value = static_cast<float>(1 << rank);
    for (int i = 0; i < 50; ++i) {  // enough to lock
      const std::int32_t own = rank % 2 == 0 ? even : odd;
      require(sum_in(runtime, own, value, "same name") == (rank % 2 == 0 ? 5.0F : 10.0F), "wrong sum in a half");
      if (is_in(runtime, {0, 1, 3})) require(sum_in(runtime, three, value, "same name") == 11, "wrong sum of three");
      if (rank == 2) require(sum_in(runtime, alone, value) == 4, "wrong sum of one");
      require(sum_in(runtime, 0, value, "same name") == 15, "wrong sum of all");
    }
  }));
}

TEST_CASE("in a process set ranks are called by their numbers in the job") {
  const Layout layout = GENERATE(from_range(kLayoutsOfFour));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    const std::int32_t set = runtime.sets().add({1, 2, 3});
    const int rank = runtime.topology().rank;
    if (rank == 0) return;
    auto value = static_cast<float>(rank);
    CallArguments call{.collective = Collective::broadcast, .process_set = set, .name = "root"};
    call.root = 2;
    call.inputs = call.outputs = {{.data = &value, .shape = {}}};
    perform(runtime, call);
    require(value == 2, "not the root's value");
    call.root = 0;
    require_refused([&] { perform(runtime, call); }, StatusCode::invalid_argument, "root rank 0");
    call.root = rank == 3 ? 1 : 2;
    require_refused([&] { perform(runtime, call); }, StatusCode::mismatch, "has root rank ");

    CallerReference join = runtime.submit({.collective = Collective::join, .process_set = set});
    require(join->wait(deadline_after(60s)), "join is not done");
    require(join->completion.last_joined >= 1, "last joined is " + std::to_string(join->completion.last_joined));
  }));
}

TEST_CASE("process sets that make no sense are refused, and nothing has changed") {
  REQUIRE_NOTHROW(run_ranks({{{3}}, {}}, [](Runtime& runtime) {
    const auto refused = [&](const std::vector<int>& ranks, const std::string& words) {
      require_refused([&] { runtime.sets().add(ranks); }, StatusCode::invalid_argument, words);
    };
    refused({}, "at least one");
    refused({0, 3}, "rank 3");
    refused({-1}, "rank -1");
    refused({1, 1}, "twice");
    refused({2, 1, 0}, "process set 0");
    const std::int32_t set = runtime.sets().add({0, 1});
    refused({1, 0}, "process set 1");
    require_refused([&] { runtime.sets().remove(0); }, StatusCode::invalid_argument, "all ranks");
    require_refused([&] { runtime.sets().remove(9); }, StatusCode::invalid_argument, "no process set 9");
    if (runtime.topology().rank == 2) {
      require_refused([&] { sum_in(runtime, set, 1); }, StatusCode::invalid_argument, "rank 2 is not in process set 1");
    } else {
      require(sum_in(runtime, set, 1) == 2, "wrong sum");
    }
  }));
}

TEST_CASE("ranks that ask for different sets all hear it, and go on") {
  REQUIRE_NOTHROW(run_ranks({{{3}}, {}}, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const std::vector<int> ranks = rank == 2 ? std::vector<int>{0, 2} : std::vector<int>{0, 1};
    require_refused([&] { runtime.sets().add(ranks); }, StatusCode::mismatch, "[0, 2]");
    const std::int32_t set = runtime.sets().add({0, 1});
    if (rank == 0) {
      require_refused([&] { runtime.sets().remove(set); }, StatusCode::mismatch, "remove number [1]");
    } else {
      require_refused([&] { runtime.sets().add({1, 2}); }, StatusCode::mismatch, "add one of ranks [1, 2]");
    }
    require(sum_in(runtime, 0, 1) == 3, "wrong sum");
  }));
}

TEST_CASE("numbers of removed sets are given out again, and mean the new set") {
  const Layout layout = GENERATE(from_range(kLayoutsOfFour));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    for (int i = 0; i < 5; ++i) {
      const std::vector<int> first{0, 1 + i % 3}, second{1, 2, 3};
      const std::int32_t a = runtime.sets().add(first), b = runtime.sets().add(second);
      require(a == 1 && b == 2, "numbers are not reused");
      if (is_in(runtime, first)) require(sum_in(runtime, a, 1) == 2, "wrong sum");
      if (is_in(runtime, second)) require(sum_in(runtime, b, 1, "x") == 3, "wrong sum");
      runtime.sets().remove(a);
      require_refused([&] { sum_in(runtime, a, 1); }, StatusCode::invalid_argument, "no process set 1");
      if (is_in(runtime, second)) require(sum_in(runtime, b, 1, "x") == 3, "wrong sum");
      runtime.sets().remove(b);
    }
  }));
}

TEST_CASE("a set in which operations are under way is not removed") {
  std::latch refused(1);
  REQUIRE_NOTHROW(run_ranks({{{3}}, {}}, [&](Runtime& runtime) {
    const std::int32_t set = runtime.sets().add({0, 1});
    const int rank = runtime.topology().rank;
    if (rank == 2) return runtime.sets().remove(set);
    if (rank == 1) refused.wait();  // until then rank 0's operation is under way
    float one = 1;
    CallArguments call{.process_set = set, .name = "open"};
    call.inputs = call.outputs = {{.data = &one, .shape = {}}};
    CallerReference handle = runtime.submit(call);
    if (rank == 0) {
      require_refused([&] { runtime.sets().remove(set); }, StatusCode::invalid_argument, "under way");
      refused.count_down();
    }
    require(handle->wait(deadline_after(60s)), "not done");
    runtime.sets().remove(set);
  }));
}

TEST_CASE("a set that waits for a rank holds nobody up, not even in another set of the same ranks' threads") {
  const Layout layout = GENERATE(from_range(kLayoutsOfFour));
  INFO(layout.name());
  std::barrier<> others_done(4);
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [&](Runtime& runtime) {
    const std::int32_t slow = runtime.sets().add({0, 1}), quick = runtime.sets().add({0, 1, 2});
    const int rank = runtime.topology().rank;
    float one = 1;
    CallArguments call{.process_set = slow, .name = "waits"};
    call.inputs = call.outputs = {{.data = &one, .shape = {}}};
    CallerReference waiting;
    if (rank == 0) waiting = runtime.submit(call);
    for (int i = 0; i < 30; ++i) {
      if (rank < 3) require(sum_in(runtime, quick, 1, "goes on") == 3, "wrong sum");
      require(sum_in(runtime, 0, 1) == 4, "wrong sum of all");
    }
    others_done.arrive_and_wait();
    if (rank == 1) waiting = runtime.submit(call);
    if (waiting) require(waiting->wait(deadline_after(60s)) && one == 2, "the waiting operation is wrong");
  }));
}

TEST_CASE("leaving ends the operations of all sets") {
  std::atomic<int> told{0};
  CHECK_THROWS(run_ranks({{{3}}, {}}, [&](Runtime& runtime) {
    const std::int32_t set = runtime.sets().add({0, 1});
    if (runtime.topology().rank == 1) return runtime.shut_down();
    if (runtime.topology().rank == 2) return;
    require_refused([&] { sum_in(runtime, set, 1, "never"); }, StatusCode::shut_down, "rank 1");
    ++told;
  }));
  CHECK(told == 1);
}

}  // namespace hvd::testing
