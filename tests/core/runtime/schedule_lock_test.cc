// The schedule lock in the whole runtime, ranks as threads: steps that repeat cost no message, and whatever deviates
// ends the lock on every rank without losing or repeating anything.
#include <algorithm>
#include <barrier>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "tests/core/runtime/lock_state.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"

namespace hvd::testing {

namespace {

// So many ranks in every way that is another one to the lock: sharing memory, over TCP, and by two levels.
RunOptions on_any_hosts(int ranks, Environment environment = {}) {
  const std::vector<int> one_host{ranks}, alone(static_cast<std::size_t>(ranks), 1), pair_and_rest{2, ranks - 2};
  std::vector<Layout> layouts{{one_host}};
  if (ranks > 1) layouts.push_back({alone});
  if (ranks > 2) layouts.push_back({pair_and_rest});
  const Layout layout = GENERATE_COPY(from_range(layouts));
  UNSCOPED_INFO(layout.name());
  return {layout, std::move(environment)};
}

// A step's tensors, each submitted by itself.
class Step {
 public:
  explicit Step(Runtime& runtime, std::size_t tensors = 5, std::size_t elements = 100)
      : runtime_(runtime), tensors_(tensors, std::vector<float>(elements)) {}

  CallArguments call(std::size_t tensor) {
    CallArguments call{.name = "tensor." + std::to_string(tensor)};
    std::vector<float>& values = tensors_[tensor];
    values.assign(values.size(), static_cast<float>(runtime_.topology().rank + 1) * static_cast<float>(tensor + 1));
    call.inputs = call.outputs = {{.data = values.data(), .shape = {static_cast<std::int64_t>(values.size())}}};
    return call;
  }

  void submit(std::size_t tensor) { handles_.emplace_back(tensor, runtime_.submit(call(tensor))); }
  void finish() {
    for (auto& [tensor, handle] : handles_) {
      require(handle->wait(deadline_after(60s)), "tensor " + std::to_string(tensor) + " is not done");
      if (!handle->completion.status().ok()) throw Error(handle->completion.status());
      check(tensor);
    }
    handles_.clear();
  }
  void check(std::size_t tensor) const {
    const int size = runtime_.topology().size;
    const float sum = static_cast<float>(size * (size + 1) / 2) * static_cast<float>(tensor + 1);
    for (const float value : tensors_[tensor]) {
      require(value == sum, [&] {
        return "tensor " + std::to_string(tensor) + " is " + std::to_string(value) + ", not " + std::to_string(sum);
      });
    }
  }

  // As submit() and finish(), handed over at once.
  void run_all(const std::vector<std::size_t>& tensors) {
    std::vector<CallArguments> arguments;
    for (const std::size_t tensor : tensors) arguments.push_back(call(tensor));
    const std::vector<Call> calls(arguments.begin(), arguments.end());
    auto operations = runtime_.run_all(calls, 60s);
    for (std::size_t i = 0; i < tensors.size(); ++i) handles_.emplace_back(tensors[i], std::move(operations[i]));
    finish();
  }

  void run() {
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) submit(tensor);
    finish();
  }

 private:
  Runtime& runtime_;
  std::vector<std::vector<float>> tensors_;
  std::vector<std::pair<std::size_t, CallerReference>> handles_;
};

// Runs steps enough for any lock to come, and returns when all ranks have looked whether they are locked.
class Locking {
 public:
  explicit Locking(int ranks) : barrier_(ranks) {}
  void operator()(Runtime& runtime, Step& step) {
    for (int i = 0; i < (kSanitized ? 30 : 100); ++i) step.run();
    const bool locked = locked_soon(runtime);
    barrier_.arrive_and_wait();
    require(locked, "not locked");
  }

 private:
  std::barrier<> barrier_;
};

// A backend that finds the calls with a certain factor impossible, on every rank alike, and else does its work. As
// those that there are, it does so only once the ranks have asked one another: any of them may decline the call.
class ParticularBackend : public Backend {
 public:
  static constexpr double kImpossible = 7;

  ParticularBackend(std::unique_ptr<Backend> inner, bool by_mismatch)
      : inner_(std::move(inner)), by_mismatch_(by_mismatch) {}

  const char* name() const override { return inner_->name(); }
  int score(const CollectiveCall& call) const override { return inner_->score(call); }
  void run(const CollectiveCall& call) override {
    inner_->run(call);
    if (call.prescale != kImpossible) return;
    if (by_mismatch_) throw Mismatch("not alike");
    throw Unsupported("not this");
  }
  bool can_be_asked(const ProcessSet& set) const override { return inner_->can_be_asked(set); }
  void decline(const ProcessSet& set, std::uint32_t call_id) override { inner_->decline(set, call_id); }
  void set_late_callback(Duration timeout, const std::function<bool()>& late) override {
    inner_->set_late_callback(timeout, late);
  }

 private:
  const std::unique_ptr<Backend> inner_;
  const bool by_mismatch_;
};

}  // namespace

TEST_CASE("steps that repeat cost no message") {
  const int ranks = GENERATE(1, 2, 4);
  const RunOptions options = on_any_hosts(ranks);
  Locking lock_all(ranks);
  std::barrier<> rendezvous(ranks);
  REQUIRE_NOTHROW(run_ranks(options, [&](Runtime& runtime) {
    Step step(runtime);
    lock_all(runtime, step);
    const std::uint64_t messages = runtime.metrics().control_messages.value();
    const std::uint64_t rounds = runtime.metrics().rounds.value();
    const std::uint64_t buckets = runtime.metrics().locked_buckets.value();
    const int steps = kSanitized ? 40 : 200;
    for (int i = 0; i < steps; ++i) step.run();
    lock_all(runtime, step);
    require(runtime.metrics().control_messages.value() == messages, "messages were sent");
    require(runtime.metrics().rounds.value() == rounds, "the coordinator was asked");
    require(runtime.metrics().locked_buckets.value() >= buckets + static_cast<std::uint64_t>(steps), "not locked");
    require(breaks(runtime) == 0, "the lock was broken");
    rendezvous.arrive_and_wait();
  }));
}

TEST_CASE("with HVD_SCHEDULE_LOCK=0 nothing is locked") {
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(2, {{"HVD_SCHEDULE_LOCK", "0"}}), [](Runtime& runtime) {
    Step step(runtime);
    for (int i = 0; i < 50; ++i) step.run();
    require(runtime.metrics().lock_state.value() == kLearn, "locked");
  }));
}

TEST_CASE("the order in which ranks submit does not matter to the lock") {
  Locking lock_all(4);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(4), [&](Runtime& runtime) {
    Step step(runtime, 8);
    lock_all(runtime, step);
    std::mt19937 random(static_cast<unsigned>(runtime.topology().rank));
    std::vector<std::size_t> order(8);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int i = 0; i < (kSanitized ? 50 : 200); ++i) {
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t tensor : order) step.submit(tensor);
      step.finish();
    }
  }));
}

TEST_CASE("a new operation ends the lock, and it comes again") {
  const int ranks = GENERATE(1, 2, 4);
  const RunOptions options = on_any_hosts(ranks);
  const bool before = GENERATE(false, true);  // the step's own operations
  INFO((before ? "before" : "after"));
  Locking lock_all(ranks);
  REQUIRE_NOTHROW(run_ranks(options, [&](Runtime& runtime) {
    Step step(runtime);
    for (int i = 0; i < 3; ++i) {
      lock_all(runtime, step);
      float one = 1;
      CallArguments call{.name = "new." + std::to_string(i)};
      call.inputs = call.outputs = {{.data = &one, .shape = {}}};
      if (!before) step.run();
      CallerReference added = runtime.submit(call);
      if (before) step.run();
      require(added->wait(deadline_after(60s)), "the new operation is not done");
      require(one == static_cast<float>(runtime.topology().size), "the new operation is wrong");
      require(breaks(runtime) >= 1, "nothing was broken");
    }
  }));
}

TEST_CASE("a shape that changes ends the lock") {
  Locking lock_all(3);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(3), [&](Runtime& runtime) {
    for (std::size_t elements = 1; elements < 5; ++elements) {
      Step step(runtime, 3, elements);
      lock_all(runtime, step);
    }
  }));
}

TEST_CASE("a shape that changes on one rank only is an error on all, and everything goes on") {
  Locking lock_all(3);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(3), [&](Runtime& runtime) {
    Step step(runtime);
    for (int i = 0; i < 5; ++i) {
      lock_all(runtime, step);
      std::vector<float> values(runtime.topology().rank == 1 ? 99 : 100, 1);
      CallArguments call{.name = "tensor.0"};
      call.inputs = call.outputs = {{.data = values.data(), .shape = {static_cast<std::int64_t>(values.size())}}};
      const Status status = outcome(runtime, call);
      require(status.code() == StatusCode::mismatch, "got " + status.message());
      require(values.front() == 1, "a failed operation has changed its tensor");
      for (std::size_t tensor = 1; tensor < 5; ++tensor) step.submit(tensor);
      step.finish();
    }
  }));
}

TEST_CASE("a program that waits in another order than before is not blocked") {
  const bool everyone = GENERATE(false, true);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(3), [everyone](Runtime& runtime) {
    Step step(runtime, 4);
    const auto one_by_one = [&](const std::vector<std::size_t>& order) {
      for (const std::size_t tensor : order) {
        step.submit(tensor);
        step.finish();
      }
    };
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 20; ++j) one_by_one({0, 1, 2, 3});
      if (everyone || runtime.topology().rank == 0) {
        one_by_one({0, 3});
        one_by_one({2, 1});
      } else {
        for (const std::size_t tensor : {0, 1, 2, 3}) step.submit(tensor);
        step.finish();
      }
    }
    require(breaks(runtime) > 0, "nothing was broken");
  }));
}

TEST_CASE("a program that polls in another order than before is not blocked") {
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(2), [](Runtime& runtime) {
    Step step(runtime, 2);
    for (int i = 0; i < 30; ++i) {
      step.submit(0);
      step.finish();
      step.submit(1);
      step.finish();
    }
    CallerReference handle = runtime.submit(step.call(1));
    while (!handle->poll()) std::this_thread::sleep_for(1ms);
    step.check(1);
    step.submit(0);
    step.finish();
  }));
}

TEST_CASE("a rank that skips an operation is named, as without a lock") {
  const Environment quick = {{"HVD_STALL_CHECK_TIME_SECONDS", "0.05"}, {"HVD_STALL_SHUTDOWN_TIME_SECONDS", "1"}};
  Locking lock_all(3);
  std::barrier<> told(3);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(3, quick), [&](Runtime& runtime) {
    Step step(runtime);
    lock_all(runtime, step);
    if (runtime.topology().rank != 1) {
      const Status status = outcome(runtime, step.call(2));
      require(status.code() == StatusCode::timeout, "got " + status.message());
      require(status.message().find("rank 1") != std::string::npos, status.message());
      require(status.message().find("tensor.2") != std::string::npos, status.message());
      told.arrive_and_wait();
    } else {
      told.arrive_and_wait();
      const Status status = outcome(runtime, step.call(2));  // what it owed
      require(status.code() == StatusCode::timeout, "got " + status.message());
    }
    lock_all(runtime, step);
  }));
}

TEST_CASE("schedule lock: a rank that comes late to an operation without a name that was given up is in step again") {
  const Environment quick = {{"HVD_STALL_CHECK_TIME_SECONDS", "0"}, {"HVD_STALL_SHUTDOWN_TIME_SECONDS", "0.7"}};
  std::barrier<> rendezvous(3);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(3, quick), [&](Runtime& runtime) {
    float value = 0;
    CallArguments call{.op = ReduceOp::max};
    call.inputs = call.outputs = {{.data = &value, .shape = {}}};
    const auto run = [&] {  // as a synchronous call: a loop of them has one name
      return outcome_of_run(runtime, call);
    };
    const auto lock_all = [&] {
      for (int i = 0; i < 100; ++i) {
        value = static_cast<float>(i);
        const Status status = run();
        require(status.ok(), status.message());
        require(value == static_cast<float>(i), "another operation");
      }
      const bool locked = locked_soon(runtime);
      rendezvous.arrive_and_wait();
      require(locked, "not locked");
    };
    lock_all();
    const bool is_late = runtime.topology().rank == 1;
    if (is_late) rendezvous.arrive_and_wait();
    for (int i = 0; i < 2; ++i) {
      const Status status = run();
      require(status.code() == StatusCode::timeout, "got " + status.message());
      require(status.message().find("rank 1") != std::string::npos, status.message());
    }
    if (!is_late) rendezvous.arrive_and_wait();
    lock_all();
  }));
}

TEST_CASE("a rank that leaves a locked schedule ends the others' operations with its name") {
  const int leaver = GENERATE(0, 2);
  std::atomic<int> told{0};
  Locking lock_all(3);
  CHECK_THROWS(run_ranks(on_any_hosts(3), [&](Runtime& runtime) {
    Step step(runtime);
    lock_all(runtime, step);
    if (runtime.topology().rank == leaver) return runtime.shut_down();
    const Status status = outcome(runtime, step.call(0));
    require(status.code() == StatusCode::shut_down, "got " + status.message());
    require(status.message().find("rank " + std::to_string(leaver)) != std::string::npos, status.message());
    ++told;
  }));
  CHECK(told == 2);
}

TEST_CASE("a join ends the lock, and joined ranks are left out") {
  Locking lock_all(3);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(3), [&](Runtime& runtime) {
    Step step(runtime);
    for (int epoch = 0; epoch < 3; ++epoch) {
      lock_all(runtime, step);
      for (int i = 0; i < runtime.topology().rank * 5; ++i) {
        float one = 1;
        CallArguments call{.name = "with joined"};
        call.inputs = call.outputs = {{.data = &one, .shape = {}}};
        perform(runtime, call);
        require(one == static_cast<float>(3 - (i < 5 ? 1 : 2)), "the sum of those left is " + std::to_string(one));
      }
      perform(runtime, {.collective = Collective::join});
    }
  }));
}

TEST_CASE("every collective can be locked") {
  std::barrier<> rendezvous(3);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(3), [&](Runtime& runtime) {
    const float own = static_cast<float>(runtime.topology().rank + 1);
    for (int i = 0; i < 60; ++i) {
      std::vector<float> values(6, own), slice(2), empty;
      CallArguments call;
      call.inputs = {{.data = values.data(), .shape = {6}}};
      const auto done = [&](Collective collective, auto check) {
        call.collective = collective;
        call.name = collective_name(collective);
        CallerReference handle = runtime.submit(call);
        require(handle->wait(deadline_after(60s)) && handle->completion.status().ok(), "failed");
        require(check(*handle), call.name + " is wrong in step " + std::to_string(i));
      };
      done(Collective::allgather, [](const Operation& ended) {
        const auto* all = static_cast<const float*>(ended.memory.outputs.front().memory.get());
        return ended.memory.outputs.front().shape == Shape{18} && all[0] == 1 && all[6] == 2 && all[17] == 3;
      });
      done(Collective::alltoall, [](const Operation& ended) {
        const auto* all = static_cast<const float*>(ended.memory.outputs.front().memory.get());
        return ended.completion.received_splits == std::vector<std::int64_t>{2, 2, 2} && all[0] == 1 && all[5] == 3;
      });
      call.outputs = {{.data = slice.data(), .shape = {2}}};
      done(Collective::reducescatter, [&](const Operation&) { return slice[0] == 6 && slice[1] == 6; });
      call.outputs = call.inputs;
      done(Collective::broadcast, [&](const Operation&) { return values[5] == 1; });
      call.inputs = call.outputs = {{.data = empty.data(), .shape = {0}}};
      done(Collective::allreduce, [](const Operation&) { return true; });
      call.inputs.clear();
      call.outputs.clear();
      done(Collective::barrier, [](const Operation&) { return true; });
    }
    const bool locked = locked_soon(runtime);
    rendezvous.arrive_and_wait();
    require(locked, "not locked");
  }));
}

TEST_CASE("process sets are locked each for itself") {
  const RunOptions options = on_any_hosts(4);
  std::barrier<> rendezvous(4);
  REQUIRE_NOTHROW(run_ranks(options, [&](Runtime& runtime) {
    const std::int32_t ends = runtime.sets().add({0, 3}), middle = runtime.sets().add({1, 2});
    const int rank = runtime.topology().rank;
    const std::int32_t own = rank == 0 || rank == 3 ? ends : middle;
    Step step(runtime);
    const auto run_all = [&](int count) {
      for (int i = 0; i < count; ++i) {
        float one = 1;
        CallArguments call{.process_set = own, .name = "in a set"};
        call.inputs = call.outputs = {{.data = &one, .shape = {}}};
        CallerReference handle = runtime.submit(call);
        step.run();
        require(handle->wait(deadline_after(60s)), "the sum of a set is not done");
        require(one == 2, "the sum of a set is " + std::to_string(one));
      }
    };
    const int times = kSanitized ? 30 : 100;
    run_all(times);
    const bool locked = locked_soon(runtime);
    rendezvous.arrive_and_wait();
    require(locked, "not locked");
    const std::uint64_t messages = runtime.metrics().control_messages.value();
    run_all(times);
    require(runtime.metrics().control_messages.value() == messages, "messages were sent");
    rendezvous.arrive_and_wait();
    if (own == ends) perform(runtime, {.collective = Collective::barrier, .process_set = ends, .name = "deviation"});
    require(breaks(runtime) == (own == ends ? 1U : 0U), "the wrong locks were broken");
    run_all(times);
  }));
}

TEST_CASE("a group of several buckets is performed as one stage") {
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(2, {{"HVD_FUSION_THRESHOLD", "400"}}), [](Runtime& runtime) {
    Step other(runtime, 2);
    for (int i = 0; i < 60; ++i) {
      std::vector<float> values(300, 1);
      std::vector<double> doubles(3, 2);
      CallArguments group{.name = "group"};
      for (int part = 0; part < 3; ++part) {
        group.inputs.push_back({.data = values.data() + part * 100, .shape = {100}});
      }
      group.inputs.push_back({.data = doubles.data(), .dtype = DType::float64, .shape = {3}});
      group.outputs = group.inputs;
      CallerReference handle = runtime.submit(group);
      other.run();
      require(handle->wait(deadline_after(60s)), "not done");
      require(values.front() == 2 && values.back() == 2 && doubles[1] == 4, "wrong sum");
      if (i % 20 == 19) perform(runtime, {.collective = Collective::barrier, .name = "other"});
    }
    require(runtime.metrics().locked_buckets.value() > 100, "not locked");
  }));
}

TEST_CASE("a call may be performed on its caller's thread") {
  const Layout layout = GENERATE(Layout{{1}}, Layout{{2}}, Layout{{3}}, Layout{{1, 2}}, Layout{{3}, false});
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    Step step(runtime, 3);
    for (int i = 0; i < 300; ++i) {
      for (const std::size_t tensor : {0, 1}) {
        const Status status = outcome_of_run(runtime, step.call(tensor));
        require(status.ok(), "not done: " + status.message());
        step.check(tensor);
      }
      if (i % 3 == 0) step.submit(2);
      if (i % 3 == 2) step.finish();
    }
    step.finish();
  }));
}

TEST_CASE("operations that are handed over at once are performed on their caller's thread") {
  const int ranks = GENERATE(1, 2);
  Locking lock_all(ranks);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(ranks), [&](Runtime& runtime) {
    Step step(runtime);
    lock_all(runtime, step);
    std::vector<std::size_t> order{0, 1, 2, 3, 4};
    std::mt19937 random(static_cast<unsigned>(runtime.topology().rank));
    for (int i = 0; i < 200; ++i) {
      std::shuffle(order.begin(), order.end(), random);
      step.run_all(order);
    }
    require(runtime.metrics().locked_buckets.value() >= 200, "not locked");
    require(runtime.run_all({}, 60s).empty(), "operations out of nothing");
  }));
}

TEST_CASE("a direct call that the backend finds impossible ends alone, and the job goes on") {
  const bool by_mismatch = GENERATE(false, true);
  RunOptions options = on_any_hosts(GENERATE(1, 2));
  options.change_data_plane = [by_mismatch](DataPlane& plane) {
    for (auto& backend : plane.backends) {
      backend = std::make_unique<ParticularBackend>(std::move(backend), by_mismatch);
    }
  };
  std::barrier<> rendezvous(options.layout.size());
  REQUIRE_NOTHROW(run_ranks(options, [&](Runtime& runtime) {
    Step step(runtime, 2);
    const StatusCode expected = by_mismatch ? StatusCode::mismatch : StatusCode::unsupported;
    const auto run_steps = [&] {
      for (int i = 0; i < 200; ++i) {
        CallArguments impossible = step.call(1);
        impossible.prescale = ParticularBackend::kImpossible;
        const Status status = outcome_of_run(runtime, impossible);
        require(status.code() == expected, "got " + status.message());
        const Status next = outcome_of_run(runtime, step.call(0));
        require(next.ok(), "not done: " + next.message());
        step.check(0);
      }
    };
    run_steps();
    const bool locked = locked_soon(runtime);
    rendezvous.arrive_and_wait();
    require(locked, "not locked");
    const std::uint64_t direct_calls = runtime.metrics().direct_calls.value();
    run_steps();
    require(runtime.metrics().direct_calls.value() > direct_calls + 200, "not performed directly");
  }));
}

TEST_CASE("a call that is performed directly does not read the CPU's clock") {
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(2), [](Runtime& runtime) {
    float value = 0;
    CallArguments call{.name = "x"};
    call.inputs = call.outputs = {{.data = &value, .shape = {}}};
    std::uint64_t direct_calls = 0;
    for (int i = 0; i < 2000; ++i) {
      value = 1;
      const std::uint64_t cpu = runtime.metrics().collective_cpu.value();
      if (runtime.run(call, 60s) == nullptr) {
        ++direct_calls;
        require(runtime.metrics().collective_cpu.value() == cpu, "CPU time was taken");
      }
      require(value == 2, "wrong sum");
    }
    require(direct_calls > 100, "nothing was performed directly");
  }));
}

TEST_CASE("threads of a program may call at once") {
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(2), [](Runtime& runtime) {
    std::vector<std::thread> threads;
    std::vector<std::string> failures(3);
    for (std::size_t thread = 0; thread < failures.size(); ++thread) {
      threads.emplace_back([&runtime, &failure = failures[thread], thread] {
        try {
          Step step(runtime, 3);
          for (int i = 0; i < (kSanitized ? 100 : 300); ++i) {
            require(outcome_of_run(runtime, step.call(thread)).ok(), "not done");
            step.check(thread);
          }
        } catch (const std::exception& error) {
          failure = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) require(failure.empty(), failure);
  }));
}

TEST_CASE("a program that does as it likes gets the right results") {
  const int ranks = GENERATE(2, 4);
  const unsigned seed = GENERATE(1U, 2U, 3U);
  if (kSanitized && seed > 1) return;
  INFO(ranks << " ranks, seed " << seed);
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(ranks), [seed](Runtime& runtime) {
    std::mt19937 common(seed), own(seed * 100 + static_cast<unsigned>(runtime.topology().rank));
    const auto chance = [](std::mt19937& random, unsigned one_in) { return random() % one_in == 0; };
    Step step(runtime, 6, 50);
    std::vector<std::size_t> tensors{0, 1, 2, 3, 4, 5};
    for (int i = 0; i < 500; ++i) {
      if (chance(common, 40)) {  // another program from here on
        tensors.clear();
        for (std::size_t tensor = 0; tensor < 6; ++tensor) {
          if (chance(common, 2)) tensors.push_back(tensor);
        }
      }
      if (chance(common, 60)) perform(runtime, {.collective = Collective::join});
      if (chance(own, 4)) std::shuffle(tensors.begin(), tensors.end(), own);
      const bool waits = chance(own, 10);
      if (chance(own, 200)) std::this_thread::sleep_for(2ms);
      if (chance(own, 3)) {
        step.run_all(tensors);
      } else {
        for (const std::size_t tensor : tensors) {
          step.submit(tensor);
          if (waits && chance(own, 100)) std::this_thread::sleep_for(100us);
        }
        step.finish();
      }
      std::sort(tensors.begin(), tensors.end());
    }
  }));
}

TEST_CASE("schedule lock: a rank that is late for longer than a collective may take ends the lock, not the job") {
  REQUIRE_NOTHROW(run_ranks(on_any_hosts(3, {{"HVD_COLLECTIVE_TIMEOUT_SECONDS", "5"}}), [](Runtime& runtime) {
    Step step(runtime);
    for (int i = 0; i < 30; ++i) {
      if (i == 20 && runtime.topology().rank == 1) std::this_thread::sleep_for(6s);
      for (std::size_t tensor = 0; tensor < 5; ++tensor) step.submit(tensor);
      step.finish();
    }
  }));
}

}  // namespace hvd::testing
