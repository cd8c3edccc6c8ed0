// Names in flight, and what is kept under a name for the next time.
#include "core/operation/operation_table.h"

#include <string>
#include <thread>
#include <vector>

#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

const std::int64_t kShape[] = {2, 3};
float kMemory[6];

const TensorView kTensor[] = {{.data = kMemory, .shape = kShape}};

Call call(std::string_view name) { return {.name = name, .inputs = kTensor, .outputs = kTensor}; }

Call call_of_broadcast(std::string_view name, int root) {
  Call broadcast = call(name);
  broadcast.collective = Collective::broadcast;
  broadcast.root = root;
  return broadcast;
}

class Names : public OperationTable {
 public:
  Names() : OperationTable(std::make_shared<Metrics>()) {}

  OperationReferences take(OperationSpec spec) {
    OperationMemory memory;
    memory.tensors.resize(spec.tensors.size());
    return OperationTable::take(std::move(spec), std::move(memory));
  }
};

OperationSpec group(const std::string& name, std::size_t tensors) {
  OperationSpec group = allreduce(name);
  group.tensors.resize(tensors, group.tensors.front());
  return group;
}

// What the engine does at the end.
void end(EngineReference operation) { CHECK_FALSE(operation->end(Status())); }

}  // namespace

TEST_CASE("A name is taken until the operation has ended, whether or not the caller has looked") {
  Names names;
  auto first = names.take(allreduce("x"));
  CHECK_THROWS_AS(names.take(allreduce("x")), InvalidArgument);
  CHECK_FALSE(names.take_again(call("x")));
  CHECK(names.any());

  SECTION("the caller does not look") { end(std::move(first.engine)); }
  SECTION("the caller is gone before") {
    first.caller.reset();
    CHECK(names.is_taken("x"));
    end(std::move(first.engine));
  }
  SECTION("it is not even begun") { first.engine.reset(); }
  CHECK_FALSE(names.is_taken("x"));
  CHECK_FALSE(names.any());
  const auto second = names.take(allreduce("x"));
  CHECK_FALSE(second.caller->completion.done());
}

TEST_CASE("The same call again is recognised, and nothing is left of its last time") {
  Names names;
  const Operation* before = nullptr;
  {
    auto taken = names.take(allreduce("x"));
    before = taken.caller.get();
    taken.caller->completion.received_splits = {1};
    taken.engine->tensors_left = 0;
    static_cast<void>(taken.engine->completion.complete(Status(StatusCode::mismatch, "wrong")));
  }
  const auto again = names.take_again(call("x"));
  REQUIRE(again);
  CHECK(again->caller.get() == before);
  CHECK(again->caller->spec == allreduce("x"));
  CHECK(again->caller->memory.tensors.front().input == kMemory);
  CHECK(again->caller->tensors_left == 1);
  CHECK_FALSE(again->caller->completion.done());
  CHECK(again->caller->completion.status().ok());
  CHECK(again->caller->completion.received_splits.empty());
}

TEST_CASE("Another call of the same name is not taken for the same") {
  Names names;
  names.take(allreduce("x"));
  CHECK_FALSE(names.take_again(call("y")));
  CHECK_FALSE(names.take_again(call("")));
  Call other = call("x");
  other.op = ReduceOp::max;
  CHECK_FALSE(names.take_again(other));
  other = call("x");
  other.prescale = 0.5;
  CHECK_FALSE(names.take_again(other));
  other = call("x");
  other.postscale = 0.5;
  CHECK_FALSE(names.take_again(other));
  other = call("x");
  other.priority = 1;
  CHECK_FALSE(names.take_again(other));
  const TensorView doubles[] = {{.data = kMemory, .dtype = DType::float64, .shape = kShape}};
  const TensorView shorter[] = {{.data = kMemory, .shape = std::span(kShape, 1)}};
  const TensorView nowhere[] = {{.shape = kShape}};
  const TensorView on_gpu[] = {{.data = kMemory, .shape = kShape, .device = 0}};
  const TensorView two[] = {kTensor[0], kTensor[0]};
  for (const std::span<const TensorView> tensors :
       {std::span<const TensorView>(doubles), std::span<const TensorView>(shorter),
        std::span<const TensorView>(nowhere), std::span<const TensorView>(on_gpu), std::span<const TensorView>(two),
        std::span<const TensorView>()}) {
    other = call("x");
    other.outputs = tensors;
    CHECK_FALSE(names.take_again(other));
    other.inputs = tensors;
    CHECK_FALSE(names.take_again(other));
  }
  other = call("x");
  other.splits = kShape;
  CHECK_FALSE(names.take_again(other));
  other = call("x");
  other.collective = Collective::broadcast;
  CHECK_FALSE(names.take_again(other));

  names.take(broadcast("from 1", 1));
  CHECK_FALSE(names.take_again(call_of_broadcast("from 1", 0)));
  CHECK(names.take_again(call_of_broadcast("from 1", 1)));

  names.take(group("group", 2));
  CHECK_FALSE(names.take_again(call("group")));
  CHECK(names.take_again(call("x")));
}

TEST_CASE("The same call on other memory is the same") {
  Names names;
  names.take(allreduce("x"));
  float input[6], output[6];
  Call elsewhere = call("x");
  const TensorView from{.data = input, .shape = kShape}, to{.data = output, .shape = kShape};
  elsewhere.inputs = {&from, 1};
  elsewhere.outputs = {&to, 1};
  const auto again = names.take_again(elsewhere);
  REQUIRE(again);
  CHECK(again->caller->memory.tensors.front().input == input);
  CHECK(again->caller->memory.tensors.front().output == output);
}

TEST_CASE("Nothing is kept of a group's tensors") {
  Names names;
  const Operation* kept = nullptr;
  {
    const auto taken = names.take(group("group", 1000));
    kept = taken.caller.get();
    CHECK(kept->spec.tensors.size() == 1000);
  }
  CHECK(kept->spec.tensors.capacity() == 0);
  CHECK(kept->memory.tensors.capacity() == 0);
  const auto again = names.take(group("group", 3));
  CHECK(again.caller.get() == kept);
  CHECK(again.caller->spec == group("group", 3));
  CHECK(again.caller->tensors_left == 3);
}

TEST_CASE("What a caller still holds is not used for another operation") {
  Names names;
  auto held = names.take(allreduce("x"));
  end(std::move(held.engine));
  REQUIRE(held.caller->poll());
  CHECK_FALSE(names.take_again(call("x")));
  const auto next = names.take(allreduce("x"));
  CHECK(next.caller.get() != held.caller.get());
  CHECK(held.caller->completion.done());
}

TEST_CASE("Operations outlive the table that made them") {
  CallerReference held;
  {
    Names names;
    auto taken = names.take(allreduce("x"));
    end(std::move(taken.engine));
    held = std::move(taken.caller);
  }
  CHECK(held->poll());
}

TEST_CASE("Nothing is submitted behind a join") {
  Names names;
  OperationSpec join;
  join.name = kJoinName;
  join.collective = Collective::join;
  names.take(allreduce("x"));
  {
    auto taken = names.take(join);
    CHECK_THROWS_AS(names.take(allreduce("x")), InvalidArgument);
    CHECK_FALSE(names.take_again(call("x")));
  }
  CHECK(names.take_again(call("x")));
  CHECK_NOTHROW(names.take(join));
}

TEST_CASE("Operations without a name are numbered, and numbers can start anew") {
  Names names;
  CHECK(names.next_synchronous_name() == "unnamed.after.0");
  CHECK(names.take(allreduce("")).caller->spec.name == "unnamed.1");
  const auto changes = names.changes_of_numbers();
  CHECK(names.take(allreduce("")).caller->spec.name == "unnamed.2");
  CHECK(names.changes_of_numbers() != changes);
  CHECK(names.next_synchronous_name() == "unnamed.after.2");
  names.join_ended(true);
  CHECK(names.take(allreduce("")).caller->spec.name == "unnamed.1");
}

TEST_CASE("After a join that was given up, numbers start anew beside the former ones") {
  Names names;
  CHECK(names.take(allreduce("")).caller->spec.name == "unnamed.1");
  names.join_ended(false);
  CHECK(names.next_synchronous_name() == "unnamed.after.0.after.join.1");
  CHECK(names.take(allreduce("")).caller->spec.name == "unnamed.1.after.join.1");
  CHECK(is_counted("unnamed.1.after.join.1"));
  CHECK_FALSE(is_counted(names.next_synchronous_name()));
  names.join_ended(true);
  CHECK(names.take(allreduce("")).caller->spec.name == "unnamed.1.after.join.1");
}

TEST_CASE("Numbers that start anew do not meet operations that have ended and are still held") {
  Names names;
  std::vector<CallerReference> held;
  for (int i = 0; i < 3; ++i) {
    auto taken = names.take(allreduce(""));
    end(std::move(taken.engine));
    held.push_back(std::move(taken.caller));
  }
  names.join_ended(true);
  for (const CallerReference& earlier : held) {
    const auto next = names.take(allreduce(""));
    CHECK(next.caller->spec.name == earlier->spec.name);
    CHECK(next.caller.get() != earlier.get());
    CHECK(earlier->completion.done());
  }
}

TEST_CASE("Of many names those in use are kept, and the others are forgotten in time") {
  Names names;
  std::vector<EngineReference> held;
  for (int i = 0; i < 5000; ++i) {
    auto taken = names.take(allreduce("name." + std::to_string(i)));
    if (i % 10 == 0) held.push_back(std::move(taken.engine));
  }
  CHECK_FALSE(names.take_again(call("name.1")));
  for (int i = 0; i < 5000; i += 10) CHECK(names.is_taken("name." + std::to_string(i)));
  held.clear();
  CHECK_FALSE(names.any());
}

TEST_CASE("Names that come again are recognised, however many others come between") {
  Names names;
  const auto take_all_again = [&names] {
    for (int i = 0; i < 1500; ++i) REQUIRE(names.take_again(call("name." + std::to_string(i))));
  };
  // More than are new at a time.
  for (int i = 0; i < 1500; ++i) names.take(allreduce("name." + std::to_string(i)));
  take_all_again();
  SECTION("those that come once") {
    for (int i = 0; i < 10000; ++i) {
      names.take(allreduce("once." + std::to_string(i)));
      if (i % 500 == 0) take_all_again();
    }
    CHECK_FALSE(names.take_again(call("once.5000")));
  }
  SECTION("generated ones, which are forgotten first") {
    for (int i = 0; i < 600; ++i) names.take(allreduce(""));
    CHECK_FALSE(names.take_again(call("unnamed.1")));
    take_all_again();
  }
}

TEST_CASE("The two may let go at the same time") {
  Names names;
  names.take(allreduce("x"));
  for (int i = 0; i < 2000; ++i) {
    auto taken = names.take_again(call("x"));
    if (!taken) taken.emplace(names.take(allreduce("x")));
    std::thread engine([operation = std::move(taken->engine)]() mutable {
      if (operation->end(Status())) operation->completion.wake();
    });
    if (i % 3 != 0) CHECK(taken->caller->wait(deadline_after(10s)));
    taken->caller.reset();
    if (i % 3 == 0) engine.join();
    if (i % 3 != 0) {
      auto next = names.take(allreduce("x"));
      engine.join();
    }
  }
}
