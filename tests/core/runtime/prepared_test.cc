// Prepared operations in the whole runtime, ranks as threads: with and without a locked schedule, among others, and
// whatever callers do with them between start and end.
#include <array>
#include <atomic>
#include <barrier>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/core/runtime/lock_state.h"
#include "tests/core/runtime/refused.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"

namespace hvd::testing {

namespace {

// Ranks in every way that is another one to a start: sharing memory, with and (on few CPUs) without a CPU for each;
// over TCP; by two levels; and where nothing is ever locked.
RunOptions in_any_way(bool of_three = false) {
  const std::vector<int> pair{2}, three{3}, apart{1, 1, 1}, mixed{2, 1};
  std::vector<RunOptions> ways{{{three}, {}}, {{apart}, {}}, {{mixed}, {}}, {{three}, {{"HVD_SCHEDULE_LOCK", "0"}}}};
  if (!of_three) ways.push_back({{pair}, {}});
  const RunOptions way = GENERATE_COPY(from_range(ways));
  UNSCOPED_INFO(way.layout.name());
  return way;
}

// A tensor of a few elements and its prepared sum over the ranks.
class Sum {
 public:
  Sum(Runtime& runtime, const std::string& name, std::size_t elements = 2, std::int32_t set = kGlobalProcessSet)
      : runtime_(runtime), values_(elements), call_{.process_set = set, .name = name} {
    call_.inputs = call_.outputs = {{.data = values_.data(), .shape = {static_cast<std::int64_t>(elements)}}};
    work_ = runtime.prepared().prepare(call_);
    require(work_->poll(), "what was not started counts as under way");
  }
  ~Sum() {
    if (work_ != nullptr && work_->caller_completes()) runtime_.prepared().hand_to_engine(*work_);
  }

  Operation& work() { return *work_; }
  const CallArguments& call() const { return call_; }
  void fill() { values_.assign(values_.size(), static_cast<float>(runtime_.topology().rank + 1)); }
  void start() {
    fill();
    runtime_.prepared().start(*work_);
  }
  // As hvd_work_wait().
  Status wait() {
    if (work_->caller_completes()) runtime_.prepared().wait_posted(*work_, Duration::max());
    require(work_->wait(deadline_after(60s)), "it is not done");
    return work_->completion.status();
  }
  void finish() {
    if (const Status status = wait(); !status.ok()) throw Error(status);
    check();
  }
  void run() {
    fill();
    runtime_.prepared().run(*work_, 60s);
    check();
  }
  void submit() {
    fill();
    perform(runtime_, call_);
    check();
  }
  void check() const {
    float expected = 0;
    for (const int rank : runtime_.sets().find(call_.process_set).set->ranks) expected += static_cast<float>(rank + 1);
    for (const float value : values_) {
      if (value != expected) throw std::runtime_error("the sum is " + std::to_string(value));
    }
  }
  void free() { work_.reset(); }

 private:
  Runtime& runtime_;
  std::vector<float> values_;
  CallArguments call_;
  CallerReference work_;
};

}  // namespace

TEST_CASE("prepared operations of all sizes are started again and again, in every way") {
  REQUIRE_NOTHROW(run_ranks(in_any_way(), [](Runtime& runtime) {
    Sum small(runtime, "small"), large(runtime, "large", 100'000), unnamed(runtime, ""), second_unnamed(runtime, "");
    for (int i = 0; i < (kSanitized ? 25 : 60); ++i) {
      small.start();
      small.finish();
      large.start();
      small.start();
      unnamed.start();
      second_unnamed.start();
      second_unnamed.finish();
      small.finish();
      unnamed.finish();
      large.finish();
      small.run();
      large.run();
    }
  }));
}

TEST_CASE("every rank may prepare an operation, submit it or run it, and change its mind") {
  REQUIRE_NOTHROW(run_ranks(in_any_way(), [](Runtime& runtime) {
    Sum sum(runtime, "sum"), other(runtime, "other");
    for (int i = 0; i < 90; ++i) {
      switch ((runtime.topology().rank + i / 10) % 3) {
        case 0: sum.submit(); break;
        case 1: sum.run(); break;
        default: sum.start(); sum.finish();
      }
      if (runtime.topology().rank != 1 || i % 30 != 0) {  // in another order now and then
        sum.start();
        other.start();
      } else {
        other.start();
        sum.start();
      }
      other.finish();
      sum.finish();
    }
  }));
}

TEST_CASE("nobody waits for a rank that has started a small operation and does something else") {
  std::barrier<> rendezvous(2);
  // By attempt: a rank that the machine holds up for 100 ms ends the lock, too.
  std::array<std::atomic<bool>, 5> broken{};
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [&](Runtime& runtime) {
    Sum sum(runtime, "sum");
    for (std::atomic<bool>& is_broken : broken) {
      for (int i = 0; i < 50; ++i) sum.run();
      if (!locked_soon(runtime)) is_broken = true;
      const std::uint64_t ended = breaks(runtime);
      rendezvous.arrive_and_wait();
      const std::uint64_t messages = runtime.metrics().control_messages.value();
      for (int i = 0; i < 20; ++i) {
        sum.start();
        if (runtime.topology().rank == i % 2) {
          rendezvous.arrive_and_wait();
          sum.finish();
        } else {
          sum.finish();
          rendezvous.arrive_and_wait();
        }
      }
      if (breaks(runtime) != ended || runtime.metrics().control_messages.value() != messages) is_broken = true;
      rendezvous.arrive_and_wait();
      if (!is_broken) return;
    }
    throw std::runtime_error("not locked any more");
  }));
}

TEST_CASE("a caller that waits briefly for a small operation returns before others that are late, and breaks no lock") {
  std::barrier<> rendezvous(2);
  std::array<std::atomic<bool>, 5> broken{};  // by attempt, as above
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [&](Runtime& runtime) {
    Sum sum(runtime, "sum");
    for (std::atomic<bool>& is_broken : broken) {
      for (int i = 0; i < 50; ++i) sum.run();
      if (!locked_soon(runtime)) is_broken = true;
      const std::uint64_t ended = breaks(runtime);
      rendezvous.arrive_and_wait();
      if (runtime.topology().rank == 0) {
        sum.start();
        if (sum.work().caller_completes()) runtime.prepared().wait_posted(sum.work(), 1ms);
        require(!sum.work().poll(), "it is done without the other rank");
        if (breaks(runtime) != ended) is_broken = true;
      }
      rendezvous.arrive_and_wait();
      if (runtime.topology().rank != 0) sum.start();
      sum.finish();
      rendezvous.arrive_and_wait();
      if (!is_broken) return;
    }
    throw std::runtime_error("not locked any more");
  }));
}

TEST_CASE("a start is refused while the last one is under way, and its name is taken until then only") {
  const RunOptions way = in_any_way();
  std::barrier<> rendezvous(way.layout.size());
  REQUIRE_NOTHROW(run_ranks(way, [&](Runtime& runtime) {
    Sum sum(runtime, "sum"), same_name(runtime, "sum");
    for (int i = 0; i < 60; ++i) {
      if (i % 10 == 9 && runtime.topology().rank == 0) {
        sum.start();
        require_refused([&] { runtime.prepared().start(sum.work()); }, "'sum' is already in flight");
        require_refused([&] { runtime.prepared().run(sum.work(), 60s); }, "'sum' is already in flight");
        require_refused([&] { same_name.start(); }, "'sum' is already in flight");
        require_refused([&] { perform(runtime, same_name.call()); }, "'sum' is already in flight");
        rendezvous.arrive_and_wait();
        sum.finish();
      } else if (i % 10 == 9) {
        rendezvous.arrive_and_wait();
        sum.run();
      } else {
        sum.run();
      }
      same_name.run();
      same_name.submit();
    }
    require_refused([&] { runtime.prepared().prepare(CallArguments{.collective = Collective::join}); }, "join");
    CallerReference plain = runtime.submit(sum.call());
    require_refused([&] { runtime.prepared().start(*plain); }, "prepared");
    require(plain->wait(deadline_after(60s)), "not done");
  }));
}

TEST_CASE("what nobody waits for ends all the same: polled, or freed while it is under way") {
  const RunOptions way = in_any_way();
  std::barrier<> rendezvous(way.layout.size());
  REQUIRE_NOTHROW(run_ranks(way, [&](Runtime& runtime) {
    for (int i = 0; i < 5; ++i) {
      Sum sum(runtime, "sum");
      for (int j = 0; j < 30; ++j) sum.run();
      sum.start();
      while (!sum.work().poll()) {
        if (sum.work().caller_completes()) runtime.prepared().hand_to_engine(sum.work());
        std::this_thread::yield();
      }
      sum.finish();
      sum.start();
      if (sum.work().caller_completes()) runtime.prepared().hand_to_engine(sum.work());
      sum.free();
      perform(runtime, {.collective = Collective::barrier, .name = "after"});  // the memory is not used any more
    }
    rendezvous.arrive_and_wait();
  }));
}

TEST_CASE("every collective but join can be prepared, and groups") {
  REQUIRE_NOTHROW(run_ranks(in_any_way(), [](Runtime& runtime) {
    const auto own = static_cast<float>(runtime.topology().rank + 1);
    std::vector<float> first(3), second(50'000), gathered(2), root(1);
    CallArguments group{.name = "group"}, gather{.collective = Collective::allgather, .name = "gather"};
    group.inputs = group.outputs = {{.data = first.data(), .shape = {3}}, {.data = second.data(), .shape = {50'000}}};
    gather.inputs = {{.data = gathered.data(), .shape = {2}}};
    CallArguments broadcast{
        .collective = Collective::broadcast, .name = "broadcast", .root = runtime.topology().size - 1};
    broadcast.inputs = broadcast.outputs = {{.data = root.data(), .shape = {}}};
    const CallerReference works[] = {runtime.prepared().prepare(group), runtime.prepared().prepare(gather),
                                     runtime.prepared().prepare(broadcast),
                                     runtime.prepared().prepare(CallArguments{.collective = Collective::barrier})};
    for (int i = 0; i < 40; ++i) {
      first.assign(3, own);
      second.assign(second.size(), 2 * own);
      gathered.assign(2, own + static_cast<float>(i));
      root.front() = own;
      for (const CallerReference& work : works) runtime.prepared().start(*work);
      for (const CallerReference& work : works) {
        require(work->wait(deadline_after(60s)) && work->completion.status().ok(), "failed");
      }
      const int size = runtime.topology().size;
      const auto sum = static_cast<float>(size * (size + 1) / 2), last = static_cast<float>(size);
      require(first[2] == sum && second[49'999] == 2 * sum && root.front() == last, "wrong results");
      const OwnedTensor& all = works[1]->memory.outputs.at(0);
      require(all.shape == Shape{2 * size} &&
                  static_cast<const float*>(all.data())[2 * size - 1] == last + static_cast<float>(i),
              "wrong rows");
    }
  }));
}

TEST_CASE("prepared operations belong to their process set, which can be removed once they have ended") {
  const RunOptions way = in_any_way(true);
  std::barrier<> rendezvous(way.layout.size());
  REQUIRE_NOTHROW(run_ranks(way, [&](Runtime& runtime) {
    for (int i = 0; i < 3; ++i) {
      const std::int32_t pair = runtime.sets().add({0, 2});
      if (runtime.topology().rank == 1) {
        require_refused([&] { Sum sum(runtime, "sum", 2, pair); }, "is not in");
        runtime.sets().remove(pair);
        rendezvous.arrive_and_wait();
        continue;
      }
      Sum sum(runtime, "sum", 2, pair);
      for (int j = 0; j < 50; ++j) {
        sum.run();
        sum.start();
        sum.finish();
      }
      runtime.sets().remove(pair);
      rendezvous.arrive_and_wait();
      require_refused([&] { sum.start(); }, "process set");
    }
    const std::int32_t again = runtime.sets().add({0, 2});
    if (runtime.topology().rank == 1) return;
    Sum sum(runtime, "sum", 2, again);
    sum.run();
  }));
}

TEST_CASE("a rank that leaves ends what the others have started, and starts nothing any more") {
  const RunOptions way = in_any_way();
  std::barrier<> rendezvous(way.layout.size());
  std::atomic<int> told{0};
  CHECK_THROWS(run_ranks(way, [&](Runtime& runtime) {
    Sum sum(runtime, "sum");
    for (int i = 0; i < 50; ++i) sum.run();
    rendezvous.arrive_and_wait();
    if (runtime.topology().rank == 1) {
      runtime.shut_down();
      try {
        sum.start();
      } catch (const Error& error) {
        require(error.code() == StatusCode::shut_down, error.what());
        require(sum.work().poll(), "it counts as under way");
        return;
      }
      throw std::runtime_error("it was started after the end");
    }
    Status status;
    try {
      sum.start();
      status = sum.wait();
    } catch (const Error& error) {  // it has left already
      status = error.status();
    }
    require(status.code() == StatusCode::shut_down, "got " + status.message());
    require(status.message().find("rank 1") != std::string::npos, status.message());
    ++told;
  }));
  CHECK(told == way.layout.size() - 1);
}

}  // namespace hvd::testing
