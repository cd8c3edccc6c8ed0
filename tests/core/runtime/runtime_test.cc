// The whole runtime, ranks as threads: errors that every rank hears, leaving, joining, stalling.
#include <atomic>
#include <barrier>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/store.h"
#include "core/flight/flight_reader.h"
#include "ops/registry.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"

namespace hvd::testing {

namespace {

const std::vector<Layout> kLayouts = {{{2}}, {{3}}, {{1, 2}}, {{3}, false}};

struct Vector {
  explicit Vector(std::int64_t elements, float value = 1) : data(static_cast<std::size_t>(elements), value) {}
  TensorArgument view() { return {.data = data.data(), .shape = {static_cast<std::int64_t>(data.size())}}; }
  std::vector<float> data;
};

CallArguments allreduce_of(Vector& vector, std::string name = "") {
  CallArguments call{.name = std::move(name)};
  call.inputs = call.outputs = {vector.view()};
  return call;
}

void require_status(const Status& status, StatusCode code, const std::vector<std::string>& words) {
  require(status.code() == code, "got " + std::string(status_code_name(status.code())) + ": " + status.message());
  for (const std::string& word : words) {
    require(status.message().find(word) != std::string::npos, "'" + word + "' is missing in: " + status.message());
  }
}

void require_usable(Runtime& runtime) {
  Vector vector(10);
  perform(runtime, allreduce_of(vector));
  require(vector.data[9] == static_cast<float>(runtime.topology().size), "the runtime is not usable afterwards");
}

}  // namespace

TEST_CASE("ranks that disagree all get the error with both values, and the runtime stays usable") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const bool odd_one = rank == runtime.topology().size - 1;
    for (int round = 0; round < 3; ++round) {
      Vector vector(odd_one ? 4 : 3);
      require_status(outcome(runtime, allreduce_of(vector, "shapes")), StatusCode::mismatch,
                     {"shapes", "[3]", "[4]", "rank"});

      Vector same(3);
      CallArguments ops = allreduce_of(same, "ops");
      ops.op = odd_one ? ReduceOp::max : ReduceOp::sum;
      require_status(outcome(runtime, ops), StatusCode::mismatch, {"ops", "max", "sum"});

      CallArguments scales = allreduce_of(same, "scales");
      scales.prescale = odd_one ? 0.5 : 1.0;
      require_status(outcome(runtime, scales), StatusCode::mismatch, {"scales", "0.5"});

      CallArguments roots = allreduce_of(same, "roots");
      roots.collective = Collective::broadcast;
      roots.root = odd_one ? 1 : 0;
      require_status(outcome(runtime, roots), StatusCode::mismatch, {"roots", "root"});

      CallArguments kinds = allreduce_of(same, "kinds");
      if (odd_one) kinds.collective = Collective::broadcast;
      require_status(outcome(runtime, kinds), StatusCode::mismatch, {"kinds", "allreduce", "broadcast"});
      require_usable(runtime);
    }
  }));
}

TEST_CASE("wrong calls are refused at once and change nothing") {
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [](Runtime& runtime) {
    Vector vector(4);
    const auto refused = [&](CallArguments call, StatusCode code, const std::string& word) {
      require_status(outcome(runtime, call), code, {word});
    };
    CallArguments call = allreduce_of(vector);
    call.inputs.clear();
    call.outputs.clear();
    refused(call, StatusCode::invalid_argument, "at least one tensor");
    call = allreduce_of(vector);
    call.outputs[0].shape = {5};
    refused(call, StatusCode::invalid_argument, "[5]");
    call = allreduce_of(vector);
    call.outputs.clear();
    refused(call, StatusCode::invalid_argument, "outputs");
    call = allreduce_of(vector);
    call.process_set = 7;
    refused(call, StatusCode::invalid_argument, "process set 7");
    call = allreduce_of(vector);
    call.inputs[0].data = nullptr;
    refused(call, StatusCode::invalid_argument, "no memory");
    call = allreduce_of(vector);
    call.inputs[0].shape = {std::int64_t{1} << 62};
    refused(call, StatusCode::invalid_argument, "larger than memory");
    call = allreduce_of(vector);
    call.inputs[0].shape = {-4};
    refused(call, StatusCode::invalid_argument, "negative");
    call = allreduce_of(vector);
    call.inputs[0].device = 0;
    refused(call, StatusCode::invalid_argument, "all on one accelerator");
    call.inputs[0].device = -2;
    refused(call, StatusCode::invalid_argument, "device -2");
    call = allreduce_of(vector);
    call.op = ReduceOp::adasum;
    call.collective = Collective::reducescatter;
    refused(call, StatusCode::invalid_argument, "only allreduce");
    call.collective = Collective::allreduce;
    call.inputs[0].dtype = call.outputs[0].dtype = DType::int32;
    refused(call, StatusCode::invalid_argument, "floating-point type, not int32");
    call = allreduce_of(vector);
    call.inputs[0].dtype = call.outputs[0].dtype = DType::boolean;
    refused(call, StatusCode::invalid_argument, "bool");
    call.inputs[0].dtype = call.outputs[0].dtype = DType::uint32;
    refused(call, StatusCode::invalid_argument, "allreduce takes uint8, int8");
    call = allreduce_of(vector);
    call.collective = Collective::broadcast;
    call.root = 2;
    refused(call, StatusCode::invalid_argument, "root rank 2");
    call = {.collective = Collective::alltoall};
    call.inputs = {vector.view()};
    call.splits = {5, 0};
    refused(call, StatusCode::invalid_argument, "splits");
    call.splits = {4};
    refused(call, StatusCode::invalid_argument, "one split");
    call = {.collective = Collective::barrier};
    call.inputs = {vector.view()};
    refused(call, StatusCode::invalid_argument, "no tensors");
    call = allreduce_of(vector, std::string(5000, 'x'));
    refused(call, StatusCode::invalid_argument, "name");
    require_usable(runtime);
  }));
}

TEST_CASE("of operations that are handed over at once each has its own end") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    const bool odd_one = runtime.topology().rank == runtime.topology().size - 1;
    const auto sum = static_cast<float>(runtime.topology().size);
    for (int round = 0; round < 3; ++round) {
      Vector first(5), wrong(odd_one ? 4 : 3), last(7);
      const CallArguments arguments[] = {allreduce_of(first, "first"), allreduce_of(wrong, "wrong"),
                                         allreduce_of(last, "last")};
      const std::vector<Call> calls(std::begin(arguments), std::end(arguments));
      const auto operations = runtime.run_all(calls, 60s);
      const std::vector<StatusCode> expected{StatusCode::ok, StatusCode::mismatch, StatusCode::ok};
      for (std::size_t i = 0; i < calls.size(); ++i) {
        require(operations[i]->poll(), "not done");
        require_status(operations[i]->completion.outcome(), expected[i], {});
      }
      require(first.data[4] == sum && last.data[6] == sum, "wrong sums");
    }
  }));
}

TEST_CASE("of operations that are handed over at once none is started if one is refused") {
  std::atomic<bool> has_looked{false};
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [&](Runtime& runtime) {
    Vector one(3), other(3);
    const auto refused = [&](const std::vector<Call>& calls) {
      try {
        runtime.run_all(calls, 60s);
        return false;
      } catch (const InvalidArgument&) {
        return true;
      }
    };
    const CallArguments first = allreduce_of(one, "x"), again = allreduce_of(other, "x");
    require(refused({first, again}), "a name twice");
    Call elsewhere = again;
    elsewhere.process_set = 7;
    require(refused({first, elsewhere}), "two process sets");
    require(one.data[0] == 1, "started");
    perform(runtime, allreduce_of(one, "x"));  // the name is free
    require(one.data[0] == 2, "wrong sum");
    if (runtime.topology().rank == 0) {
      const auto late = runtime.run_all(std::vector<Call>{allreduce_of(other, "late")}, 20ms);
      const bool was_done = late.front()->poll();
      has_looked = true;
      has_looked.notify_all();
      require(!was_done, "done without the other rank");
      require(late.front()->wait(deadline_after(60s)), "not done");
    } else {
      has_looked.wait(false);
      perform(runtime, allreduce_of(other, "late"));
    }
  }));
}

TEST_CASE("a name is in flight until the operation has ended, whether or not the caller has looked") {
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [](Runtime& runtime) {
    Vector a(4), b(4);
    CallerReference first;
    if (runtime.topology().rank == 0) {
      first = runtime.submit(allreduce_of(a, "name"));
      require_status(outcome(runtime, allreduce_of(b, "name")), StatusCode::invalid_argument, {"name", "in flight"});
    }
    perform(runtime, {.collective = Collective::barrier});
    if (!first) first = runtime.submit(allreduce_of(a, "name"));
    perform(runtime, {.collective = Collective::barrier});  // by now it is done, but nobody has looked
    perform(runtime, allreduce_of(b, "name"));
    require(first->poll() && a.data[0] == 2 && b.data[0] == 2, "the two operations are mixed up");

    { const CallerReference dropped = runtime.submit(allreduce_of(a, "dropped")); }
    perform(runtime, {.collective = Collective::barrier});
    perform(runtime, allreduce_of(b, "dropped"));
  }));
}

TEST_CASE("numbers that start anew after a join do not meet operations that nobody has waited for") {
  REQUIRE_NOTHROW(run_ranks({{{3}}, {}}, [](Runtime& runtime) {
    std::vector<CallerReference> abandoned;
    Vector before(4);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i <= runtime.topology().rank; ++i) {
        CallArguments call = allreduce_of(before);
        call.outputs.clear();
        call.collective = Collective::allgather;  // the result is hvd's, and as long there as the handle
        abandoned.push_back(runtime.submit(std::move(call)));
      }
      perform(runtime, {.collective = Collective::join});
    }
    for (CallerReference& handle : abandoned)
      require(handle->poll(), "what was submitted before a join is not done after it");
    require_usable(runtime);
  }));
}

TEST_CASE("a rank that leaves ends the others' operations with its name, and init works again") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  for (int cycle = 0; cycle < 3; ++cycle) {
    std::atomic<int> told{0};
    // The closing barrier of run_ranks cannot succeed after somebody has left.
    CHECK_THROWS(run_ranks({layout, {}}, [&](Runtime& runtime) {
      require_usable(runtime);
      if (runtime.topology().rank == 1) {
        runtime.shut_down();
        return;
      }
      Vector vector(4);
      require_status(outcome(runtime, allreduce_of(vector, "never")), StatusCode::shut_down, {"rank 1"});
      require_status(outcome(runtime, allreduce_of(vector, "later")), StatusCode::shut_down, {"rank 1"});
      ++told;
    }));
    CHECK(told == layout.size() - 1);
  }
}

TEST_CASE("a rank that fails ends the others' operations with its name and its cause") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  std::atomic<int> told{0};
  CHECK_THROWS(run_ranks({layout, {}}, [&](Runtime& runtime) {
    require_usable(runtime);
    const int rank = runtime.topology().rank;
    Vector vector(4);
    if (rank == 1) {
      runtime.fail("raised ValueError: bad data (train.py:31)");
      runtime.fail("raised something else");
      require_status(outcome(runtime, allreduce_of(vector, "own")), StatusCode::aborted, {"rank 1", "ValueError"});
    } else {
      const Status status = outcome(runtime, allreduce_of(vector, "never"));
      require_status(status, StatusCode::aborted, {"rank 1 on ", " raised ValueError: bad data (train.py:31)"});
      runtime.fail("raised HorovodInternalError");
      require_status(outcome(runtime, allreduce_of(vector, "later")), StatusCode::aborted, {"rank 1 on "});
    }
    const SharedMemory& recorded = runtime.flight().memory();
    const JobEnding ending = read_job_ending({recorded.data(), recorded.size()});
    require(ending.kind == (rank == 1 ? JobEnding::Kind::local_failure : JobEnding::Kind::consequence), "wrong kind");
    require(rank == 1 ? ending.cause == "raised ValueError: bad data (train.py:31)" : ending.culprit == 1,
            ending.cause);
    ++told;
  }));
  CHECK(told == layout.size());
}

TEST_CASE("joined ranks contribute neutral elements until all have joined") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    for (int epoch = 0; epoch < 2; ++epoch) {
      // Rank r has r + 1 batches; the highest rank joins last.
      for (int batch = 0; batch <= t.rank; ++batch) {
        Vector sum(3), low(3, 5), average(2);
        perform(runtime, allreduce_of(sum, "sum"));
        require(sum.data[0] == static_cast<float>(t.size - batch),
                "sum with joined ranks is " + std::to_string(sum.data[0]));
        CallArguments min = allreduce_of(low, "min");
        min.op = ReduceOp::min;
        perform(runtime, min);
        require(low.data[2] == 5, "min with joined ranks is " + std::to_string(low.data[2]));
        CallArguments mean = allreduce_of(average, "average");
        mean.op = ReduceOp::average;
        perform(runtime, mean);
        require(average.data[1] == static_cast<float>(t.size - batch) * (1.0F / static_cast<float>(t.size)),
                "average divides by all ranks, joined or not");
      }
      CallerReference join = runtime.submit({.collective = Collective::join, .name = "join"});
      require(join->wait(deadline_after(std::chrono::minutes(1))), "join is not done");
      require(join->completion.last_joined == t.size - 1,
              "last joined is " + std::to_string(join->completion.last_joined));
    }
    require_usable(runtime);
  }));
}

// The response that all ranks know of the name from before must not decide by what is divided.
TEST_CASE("averages are divided by the ranks that contribute, if that is wanted") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {{"HVD_JOIN_DIVISOR", "contributing"}}}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    const auto average = [&](const std::string& name) {
      Vector vector(3, static_cast<float>(12 * (t.rank + 1)));
      CallArguments call = allreduce_of(vector, name);
      call.op = ReduceOp::average;
      perform(runtime, call);
      return vector.data[2];
    };
    // Of 12, 24, ... for the ranks from `first` on.
    const auto mean = [&](int first) { return static_cast<float>(6 * (first + 1 + t.size)); };
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int batch = 0; batch <= t.rank; ++batch) {
        const float got = average("average");
        require(got == mean(batch), "batch " + std::to_string(batch) + " gives " + std::to_string(got));
      }
      perform(runtime, {.collective = Collective::join});
      require(average("average") == mean(0), "the average of all after a join");
    }
  }));
}

TEST_CASE("a rank that has joined submits nothing until the join has ended") {
  std::atomic<bool> refused{false};
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [&](Runtime& runtime) {
    Vector vector(4);
    if (runtime.topology().rank == 0) {
      CallerReference join = runtime.submit({.collective = Collective::join});
      require_status(outcome(runtime, allreduce_of(vector)), StatusCode::invalid_argument, {"joined"});
      require_status(outcome(runtime, {.collective = Collective::join}), StatusCode::invalid_argument, {"joined"});
      refused = true;
      refused.notify_all();
      require(join->wait(deadline_after(std::chrono::minutes(1))), "join is not done");
    } else {
      perform(runtime, allreduce_of(vector, "alone"));
      require(vector.data[0] == 1, "a joined rank gives zero");
      refused.wait(false);  // rank 0's join ends with this rank's
      perform(runtime, {.collective = Collective::join});
    }
    require_usable(runtime);
  }));
}

TEST_CASE("an operation that a rank never submits ends with an error that names it") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  const Environment quick = {{"HVD_STALL_CHECK_TIME_SECONDS", "0.05"}, {"HVD_STALL_SHUTDOWN_TIME_SECONDS", "1"}};
  std::atomic<int> told{0};
  REQUIRE_NOTHROW(run_ranks({layout, quick}, [&](Runtime& runtime) {
    Vector vector(4);
    if (runtime.topology().rank != 1) {
      require_status(outcome(runtime, allreduce_of(vector, "lonely")), StatusCode::timeout, {"lonely", "rank 1"});
      told.fetch_add(1);
      told.notify_all();
    } else {
      for (int seen = 0; seen < runtime.topology().size - 1; seen = told.load()) told.wait(seen);
    }
    require_usable(runtime);
  }));
}

TEST_CASE("a join to which a rank never comes ends with an error that names it") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  const Environment quick = {{"HVD_STALL_CHECK_TIME_SECONDS", "0.05"}, {"HVD_STALL_SHUTDOWN_TIME_SECONDS", "1"}};
  std::atomic<int> told{0};
  REQUIRE_NOTHROW(run_ranks({layout, quick}, [&](Runtime& runtime) {
    const auto join_in_vain = [&] {
      require_status(outcome(runtime, {.collective = Collective::join}), StatusCode::timeout, {"join", "rank 1"});
    };
    if (runtime.topology().rank != 1) {
      join_in_vain();
      told.fetch_add(1);
      told.notify_all();
    } else {
      for (int seen = 0; seen < runtime.topology().size - 1; seen = told.load()) told.wait(seen);
    }
    Vector vector(10);
    perform(runtime, allreduce_of(vector, "named"));  // as if nobody had joined
    if (runtime.topology().rank == 1) join_in_vain();
    require_usable(runtime);
    perform(runtime, {.collective = Collective::join});
  }));
}

namespace {

const Environment kQuickLimit = {{"HVD_STALL_CHECK_TIME_SECONDS", "0"}, {"HVD_STALL_SHUTDOWN_TIME_SECONDS", "2"}};

// Rank 1 goes on when the others, one less than `ranks`, have come here.
void let_rank_1_be_last(const Runtime& runtime, int ranks, std::atomic<int>& arrived) {
  if (runtime.topology().rank != 1) {
    arrived.fetch_add(1);
    arrived.notify_all();
  } else {
    for (int seen = 0; seen < ranks - 1; seen = arrived.load()) arrived.wait(seen);
  }
}

CallArguments unnamed_in(std::int32_t process_set, Vector& vector) {
  CallArguments call = allreduce_of(vector);
  call.process_set = process_set;
  call.op = ReduceOp::max;
  return call;
}

Status outcome_of(CallerReference& handle) {
  require(handle->wait(deadline_after(60s)), "an operation is not done");
  return handle->completion.status();
}

// Two operations at once and one by itself, which rank 1 comes to when the others have had their errors.
void give_up_three(Runtime& runtime, std::int32_t process_set, const std::vector<std::string>& words) {
  Vector a(3), b(4), c(5);
  CallerReference first = runtime.submit(unnamed_in(process_set, a)),
                  second = runtime.submit(unnamed_in(process_set, b));
  require_status(outcome_of(first), StatusCode::timeout, words);
  require_status(outcome_of(second), StatusCode::timeout, words);
  require_status(outcome_of_run(runtime, unnamed_in(process_set, c)), StatusCode::timeout, words);
}

// Operations that their values tell apart.
void require_in_step(Runtime& runtime, std::int32_t process_set) {
  for (int step = 0; step < 4; ++step) {
    Vector a(3, static_cast<float>(step)), b(3, static_cast<float>(step) + 100), c(3, static_cast<float>(step) + 200);
    CallerReference first = runtime.submit(unnamed_in(process_set, a)),
                    second = runtime.submit(unnamed_in(process_set, b));
    require_status(outcome_of_run(runtime, unnamed_in(process_set, c)), StatusCode::ok, {});
    require_status(outcome_of(first), StatusCode::ok, {});
    require_status(outcome_of(second), StatusCode::ok, {});
    const auto value = static_cast<float>(step);
    require(a.data[2] == value && b.data[2] == value + 100 && c.data[2] == value + 200, "another operation");
  }
}

}  // namespace

TEST_CASE("operations without a name match again when a rank comes late to some that were given up") {
  const Layout layout = GENERATE(Layout{{3}}, Layout{{1, 2}});
  const bool in_a_set = GENERATE(false, true);
  CAPTURE(layout.name(), in_a_set);
  std::atomic<int> arrived{0};
  std::barrier<> end(layout.size());
  REQUIRE_NOTHROW(run_ranks({layout, kQuickLimit}, [&](Runtime& runtime) {
    const std::int32_t set = in_a_set ? runtime.sets().add({0, 1}) : kGlobalProcessSet;
    const int ranks = in_a_set ? 2 : 3;
    if (runtime.topology().rank < ranks) {
      if (runtime.topology().rank == 1) let_rank_1_be_last(runtime, ranks, arrived);
      give_up_three(runtime, set, {"given up", "rank 1"});
      if (runtime.topology().rank != 1) let_rank_1_be_last(runtime, ranks, arrived);
      require_in_step(runtime, set);
    }
    end.arrive_and_wait();
  }));
}

TEST_CASE("operations that are not started because one beside them is refused use up no numbers") {
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [](Runtime& runtime) {
    Vector one(3), other(3);
    const CallArguments unnamed = allreduce_of(one), named = allreduce_of(one, "x"), again = allreduce_of(other, "x");
    if (runtime.topology().rank == 1) {
      bool refused = false;
      try {
        runtime.run_all(std::vector<Call>{unnamed, named, again}, 60s);
      } catch (const InvalidArgument&) {
        refused = true;
      }
      require(refused, "a name was taken twice");
    }
    require_status(outcome(runtime, unnamed), StatusCode::ok, {});
    require(one.data[2] == 2, "wrong sum");
  }));
}

TEST_CASE("operations without a name match again when a rank comes late to a join that was given up") {
  const Layout layout = GENERATE(Layout{{3}}, Layout{{1, 2}}, Layout{{1, 1, 1}});
  INFO(layout.name());
  std::atomic<int> arrived{0};
  REQUIRE_NOTHROW(run_ranks({layout, kQuickLimit}, [&](Runtime& runtime) {
    const CallArguments join{.collective = Collective::join};
    const std::vector<std::string> words{"join: given up", "rank 1"};
    require_in_step(runtime, kGlobalProcessSet);
    if (runtime.topology().rank == 1) {
      let_rank_1_be_last(runtime, 3, arrived);
      give_up_three(runtime, kGlobalProcessSet, words);  // the others have left this part of the program
    }
    require_status(outcome(runtime, join), StatusCode::timeout, words);
    if (runtime.topology().rank != 1) let_rank_1_be_last(runtime, 3, arrived);
    require_in_step(runtime, kGlobalProcessSet);
    perform(runtime, join);
    require_in_step(runtime, kGlobalProcessSet);
  }));
}

// The last one submits odd tensors only, and joins when all others have.
TEST_CASE("what was submitted before a join has ended when the join does, and the last to join is named") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    for (int epoch = 0; epoch < 6; ++epoch) {
      const int last = epoch % t.size;
      std::vector<Vector> vectors(20, Vector(5));
      std::vector<CallerReference> handles;
      for (std::size_t i = t.rank == last ? 1 : 0; i < vectors.size(); i += t.rank == last ? 2 : 1) {
        handles.push_back(runtime.submit(allreduce_of(vectors[i], "tensor." + std::to_string(i))));
      }
      Vector alone(2);
      CallArguments from_last = allreduce_of(alone, "from the last");
      from_last.collective = Collective::broadcast;
      from_last.root = last;
      if (t.rank == last) perform(runtime, allreduce_of(alone, "needs all or their joins"));
      if (t.rank != last) handles.push_back(runtime.submit(from_last));
      CallerReference join = runtime.submit({.collective = Collective::join});
      require(join->wait(deadline_after(60s)), "join is not done");
      require(join->completion.last_joined == last, "last joined is " + std::to_string(join->completion.last_joined));
      for (CallerReference& handle : handles) require(handle->poll(), "an operation is not done when its join is");
      if (t.rank != last) {
        require_status(handles.back()->completion.status(), StatusCode::mismatch,
                       {"from the last", "its root, rank " + std::to_string(last), "has joined"});
        handles.pop_back();
      }
      for (CallerReference& handle : handles) require_status(handle->completion.status(), StatusCode::ok, {});
      for (std::size_t i = 0; i < vectors.size(); ++i) {
        const int summed = t.rank == last && i % 2 == 0 ? 1 : t.size - (i % 2 == 0 ? 1 : 0);
        require(vectors[i].data[4] == static_cast<float>(summed), "tensor " + std::to_string(i));
      }
    }
    require_usable(runtime);
  }));
}

TEST_CASE("many init and shutdown cycles") {
  for (int i = 0; i < 100; ++i) {
    REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [](Runtime& runtime) { require_usable(runtime); }));
  }
}

TEST_CASE("a message larger than the control channel's ring arrives before the collective that it orders") {
  const Layout layout = GENERATE(Layout{{2}}, Layout{{4}}, Layout{{1, 2}}, Layout{{3}, false});
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {{"HVD_COLLECTIVE_TIMEOUT_SECONDS", "20"}}}, [](Runtime& runtime) {
    constexpr std::size_t kTensors = 20'000;
    for (int round = 0; round < (kSanitized ? 1 : 3); ++round) {
      Vector values(kTensors);
      CallArguments call{.name = "large." + std::to_string(round)};
      for (float& value : values.data) call.inputs.push_back({.data = &value, .shape = {1}});
      call.outputs = call.inputs;
      perform(runtime, call);
      require(values.data[kTensors - 1] == static_cast<float>(runtime.topology().size), "wrong sum");
    }
  }));
}

TEST_CASE("a control tree of several levels agrees, names who disagrees and who is missing, and joins") {
  const Layout layout = GENERATE(Layout{std::vector<int>(20, 1)}, Layout{std::vector<int>(19, 2)});
  INFO(layout.name());
  // Long enough for so many ranks to come to an operation on two CPUs.
  const Environment limits = {{"HVD_STALL_CHECK_TIME_SECONDS", "1"}, {"HVD_STALL_SHUTDOWN_TIME_SECONDS", "4"}};
  REQUIRE_NOTHROW(run_ranks({layout, limits}, [](Runtime& runtime) {
    const int rank = runtime.topology().rank, last = runtime.topology().size - 1;
    for (int step = 0; step < 5; ++step) {
      Vector vector(3, static_cast<float>(rank + step));
      perform(runtime, allreduce_of(vector, "same"));
      const int sum = last * (last + 1) / 2 + step * (last + 1);
      require(vector.data[2] == static_cast<float>(sum), "wrong sum");
    }
    Vector odd(rank == last ? 4 : 3);
    require_status(outcome(runtime, allreduce_of(odd, "odd")), StatusCode::mismatch,
                   {"rank " + std::to_string(last), "shape [4]"});
    if (rank != last) {
      Vector lonely(1);
      require_status(outcome(runtime, allreduce_of(lonely, "lonely")), StatusCode::timeout,
                     {"rank " + std::to_string(last)});
    } else {
      std::this_thread::sleep_for(2s);  // what this rank starts next waits for the others, and must not grow as old
    }
    require_usable(runtime);
    if (rank % 3 == 0) {
      Vector more(2);
      perform(runtime, allreduce_of(more, "more"));
      require(more.data[0] == static_cast<float>(last / 3 + 1), "joined ranks do not count");
    }
    perform(runtime, {.collective = Collective::join});
    require_usable(runtime);
  }));
}

namespace {

// Many slow operations and then an urgent one. Returns whether that was done before the last of the others.
bool overtakes(Runtime& runtime) {
  constexpr std::int64_t kLarge = 1 << 20;  // floats: a bucket of its own
  std::vector<Vector> slow(8, Vector(kLarge));
  std::vector<CallerReference> handles;
  for (std::size_t i = 0; i < slow.size(); ++i) {
    CallArguments call = allreduce_of(slow[i], "slow." + std::to_string(i));
    call.priority = -1;
    handles.push_back(runtime.submit(call));
  }
  Vector urgent(2);
  perform(runtime, allreduce_of(urgent, "urgent"));
  const bool overtaken = !handles.back()->poll();
  for (CallerReference& handle : handles) require(handle->wait(deadline_after(60s)), "not done");
  require(urgent.data[0] == 2 && slow.back().data[kLarge - 1] == 2, "wrong sum");
  return overtaken;
}

}  // namespace

// Without priorities it never does; with them a rank that does not get a CPU for so long may come too late.
TEST_CASE("what is urgent overtakes what was submitted before it") {
  const RunOptions options{Layout{std::vector<int>{2}}, {{"HVD_FUSION_THRESHOLD", "1000000"}}};
  std::atomic<bool> on_both = false;
  REQUIRE_NOTHROW(run_ranks(options, [&](Runtime& runtime) {
    for (int turn = 0; turn < 100 && !on_both; ++turn) {
      Vector ranks(1, overtakes(runtime) ? 1 : 0);
      perform(runtime, allreduce_of(ranks, "on how many"));
      if (ranks.data[0] == 2) on_both = true;
      perform(runtime, {.collective = Collective::barrier});
    }
  }));
  CHECK(on_both);
}

TEST_CASE("a rank that has joined cannot stand for a prescaled factor") {
  const Layout layout = GENERATE(from_range(kLayouts));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    if (runtime.topology().rank > 0) {
      Vector vector(3, 2);
      CallArguments call = allreduce_of(vector, "product");
      call.op = ReduceOp::product;
      perform(runtime, CallArguments{.collective = Collective::barrier});
      call.prescale = 0.5;
      require_status(outcome(runtime, call), StatusCode::mismatch, {"product", "rank 0", "has joined"});
      call.prescale = 1;
      perform(runtime, call);
    } else {
      perform(runtime, CallArguments{.collective = Collective::barrier});
    }
    perform(runtime, CallArguments{.collective = Collective::join});
  }));
}

TEST_CASE("two threads may look at one operation") {
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [](Runtime& runtime) {
    for (int round = 0; round < 200; ++round) {
      Vector vector(10);
      CallerReference handle = runtime.submit(allreduce_of(vector, "seen twice"));
      std::thread other([&] { handle->wait(deadline_after(60s)); });
      handle->wait(deadline_after(60s));
      other.join();
    }
  }));
}

TEST_CASE("a synchronous call keeps its deadline while another thread's is in progress") {
  std::atomic<bool> has_timed_out = false;
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [&](Runtime& runtime) {
    Vector first(10), second(10);
    if (runtime.topology().rank == 1) {
      has_timed_out.wait(false);
      return require_status(outcome_of_run(runtime, allreduce_of(first)), StatusCode::ok, {});
    }
    std::thread other([&] { require_status(outcome_of_run(runtime, allreduce_of(first)), StatusCode::ok, {}); });
    while (runtime.metrics().cache_misses.value() == 0) std::this_thread::yield();  // it has begun
    std::string text;
    try {
      runtime.run(allreduce_of(second), 50ms);
    } catch (const Timeout& error) {
      text = error.what();
    }
    has_timed_out = true;
    has_timed_out.notify_all();
    other.join();
    require(text.find("was not started") != std::string::npos, "no timeout: " + text);
    require(first.data[9] == 2, "the other thread's operation went wrong");
  }));
}

TEST_CASE("operations without a name match although a caller has stopped waiting for one") {
  std::atomic<bool> has_stopped = false;
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [&](Runtime& runtime) {
    Vector first(10), second(10);
    if (runtime.topology().rank == 0) {
      const CallerReference late = runtime.run(allreduce_of(first), 20ms);
      const bool was_done = late->poll();
      const Status next = outcome_of_run(runtime, allreduce_of(second), 20ms);
      has_stopped = true;
      has_stopped.notify_all();
      require(!was_done, "done without the other rank");
      require_status(next, StatusCode::timeout,
                     {"was not started"});  // and not under a number that rank 1 does not use
      require(late->wait(deadline_after(60s)), "not done");
    } else {
      has_stopped.wait(false);
      require_status(outcome_of_run(runtime, allreduce_of(first)), StatusCode::ok, {});
    }
    require_status(outcome_of_run(runtime, allreduce_of(second)), StatusCode::ok, {});
    require(first.data[9] == 2 && second.data[9] == 2, "the two operations are mixed up");
  }));
}

TEST_CASE("ranks with other settings do not start") {
  struct Setting {
    std::string name, first, other;
  };
  const Setting setting =
      GENERATE(Setting{"HVD_CHUNK_BYTES", "8192", "4096"}, Setting{"HVD_JOIN_DIVISOR", "all", "contributing"});
  Store store;
  const JobKey key = JobKey::random();
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&store, &key, &setting, rank]() -> std::string {
      const Environment environment{{"HVD_SIZE", "2"},
                                    {"HVD_RANK", std::to_string(rank)},
                                    {"HVD_START_TIMEOUT", "10"},
                                    {setting.name, rank == 0 ? setting.first : setting.other}};
      try {
        Runtime runtime(read_config(environment).config, {.store = store,
                                                          .job_key = key,
                                                          .identity = {.host_key = "h", .hostname = "h", .pid = 1},
                                                          .local_host_address = "127.0.0.1",
                                                          .make_data_plane = make_data_plane,
                                                          .make_channel = make_channel});
      } catch (const Error& error) {
        return std::string(status_code_name(error.code())) + " " + error.what();
      }
      return "started";
    }));
  }
  for (auto& rank : ranks) {
    const std::string text = rank.get();
    INFO(text);
    CHECK(text.find(setting.name + "=" + setting.first) != std::string::npos);
    CHECK(text.find(setting.name + "=" + setting.other) != std::string::npos);
    CHECK(text.find("rank 1") != std::string::npos);
  }
}

}  // namespace hvd::testing
