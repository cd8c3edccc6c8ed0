// Names in flight, and what is kept under a name for the next time.
#include "core/operation/named_submissions.h"

#include <string>
#include <thread>
#include <vector>

#include "tests/core/control/requests.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

const std::int64_t kShape[] = {2, 3};
float kMemory[6];

DirectCall direct(std::string_view name) {
  return {.name = name, .shape = kShape, .input = kMemory, .output = kMemory};
}

DirectCall direct_broadcast(std::string_view name, int root) {
  DirectCall direct = ::direct(name);
  direct.collective = Collective::broadcast;
  direct.root = root;
  return direct;
}

class Names : public NamedSubmissions {
 public:
  Names() : NamedSubmissions(std::make_shared<Metrics>()) {}

  Taken take(Request request) {
    Taken taken = NamedSubmissions::take(std::move(request));
    taken.engines->tensors.resize(taken.engines->request.tensors.size());
    return taken;
  }
};

Request group(const std::string& name, std::size_t tensors) {
  Request group = allreduce(name);
  group.tensors.resize(tensors, group.tensors.front());
  return group;
}

// What the engine does at the end.
void end(EnginesSubmission submission) {
  submission->free_name();
  CHECK_FALSE(submission->work.complete(Status()));
}

}  // namespace

TEST_CASE("A name is taken until the operation has ended, whether or not the caller has looked") {
  Names names;
  auto first = names.take(allreduce("x"));
  CHECK_THROWS_AS(names.take(allreduce("x")), InvalidArgument);
  CHECK_FALSE(names.take_again(direct("x")));
  CHECK(names.any());

  SECTION("the caller does not look") { end(std::move(first.engines)); }
  SECTION("the caller is gone before") {
    first.callers.reset();
    CHECK(names.is_taken("x"));
    end(std::move(first.engines));
  }
  SECTION("it is not even begun") { first.engines.reset(); }
  CHECK_FALSE(names.is_taken("x"));
  CHECK_FALSE(names.any());
  const auto second = names.take(allreduce("x"));
  CHECK_FALSE(second.callers->work.done());
}

TEST_CASE("The same call again is recognised, and nothing is left of its last time") {
  Names names;
  const Submission* before = nullptr;
  {
    auto taken = names.take(allreduce("x"));
    before = taken.callers.get();
    taken.callers->work.received_splits = {1};
    taken.engines->tensors_left = 0;
    static_cast<void>(taken.engines->work.complete(Status(StatusCode::mismatch, "wrong")));
  }
  const auto again = names.take_again(direct("x"));
  REQUIRE(again);
  CHECK(again->callers.get() == before);
  CHECK(again->callers->request == allreduce("x"));
  CHECK(again->callers->tensors.front().input == kMemory);
  CHECK(again->callers->tensors_left == 1);
  CHECK_FALSE(again->callers->work.done());
  CHECK(again->callers->work.status().ok());
  CHECK(again->callers->work.received_splits.empty());
}

TEST_CASE("Another call of the same name is not taken for the same") {
  Names names;
  names.take(allreduce("x"));
  CHECK_FALSE(names.take_again(direct("y")));
  CHECK_FALSE(names.take_again(direct("")));
  DirectCall other = direct("x");
  other.op = ReduceOp::max;
  CHECK_FALSE(names.take_again(other));
  other = direct("x");
  other.prescale = 0.5;
  CHECK_FALSE(names.take_again(other));
  other = direct("x");
  other.postscale = 0.5;
  CHECK_FALSE(names.take_again(other));
  other = direct("x");
  other.priority = 1;
  CHECK_FALSE(names.take_again(other));
  other = direct("x");
  other.dtype = DType::float64;
  CHECK_FALSE(names.take_again(other));
  other = direct("x");
  other.shape = std::span(kShape, 1);
  CHECK_FALSE(names.take_again(other));
  other = direct("x");
  other.collective = Collective::broadcast;
  CHECK_FALSE(names.take_again(other));

  names.take(broadcast("from 1", 1));
  CHECK_FALSE(names.take_again(direct_broadcast("from 1", 0)));
  CHECK(names.take_again(direct_broadcast("from 1", 1)));

  names.take(group("group", 2));
  CHECK_FALSE(names.take_again(direct("group")));
  CHECK(names.take_again(direct("x")));
}

TEST_CASE("The same call on other memory is the same") {
  Names names;
  names.take(allreduce("x"));
  float input[6], output[6];
  DirectCall elsewhere = direct("x");
  elsewhere.input = input;
  elsewhere.output = output;
  const auto again = names.take_again(elsewhere);
  REQUIRE(again);
  CHECK(again->callers->tensors.front().input == input);
  CHECK(again->callers->tensors.front().output == output);
}

TEST_CASE("A call whose tensors were never filled in is not taken for the same") {
  Names names;
  names.NamedSubmissions::take(allreduce("x"));
  CHECK_FALSE(names.take_again(direct("x")));
}

TEST_CASE("Nothing is kept of a group's tensors") {
  Names names;
  const Submission* kept = nullptr;
  {
    const auto taken = names.take(group("group", 1000));
    kept = taken.callers.get();
    CHECK(kept->request.tensors.size() == 1000);
  }
  CHECK(kept->request.tensors.capacity() == 0);
  CHECK(kept->tensors.capacity() == 0);
  const auto again = names.take(group("group", 3));
  CHECK(again.callers.get() == kept);
  CHECK(again.callers->request == group("group", 3));
  CHECK(again.callers->tensors_left == 3);
}

TEST_CASE("What a caller still holds is not used for another operation") {
  Names names;
  auto held = names.take(allreduce("x"));
  end(std::move(held.engines));
  REQUIRE(held.callers->poll());
  CHECK_FALSE(names.take_again(direct("x")));
  const auto next = names.take(allreduce("x"));
  CHECK(next.callers.get() != held.callers.get());
  CHECK(held.callers->work.done());
}

TEST_CASE("Submissions outlive the table that made them") {
  CallersSubmission held;
  {
    Names names;
    auto taken = names.take(allreduce("x"));
    end(std::move(taken.engines));
    held = std::move(taken.callers);
  }
  CHECK(held->poll());
}

TEST_CASE("Nothing is submitted behind a join") {
  Names names;
  Request join;
  join.name = kJoinName;
  join.collective = Collective::join;
  names.take(allreduce("x"));
  {
    auto taken = names.take(join);
    CHECK_THROWS_AS(names.take(allreduce("x")), InvalidArgument);
    CHECK_FALSE(names.take_again(direct("x")));
  }
  CHECK(names.take_again(direct("x")));
  CHECK_NOTHROW(names.take(join));
}

TEST_CASE("Operations without a name are numbered, and numbers can start anew") {
  Names names;
  CHECK(names.name_of_synchronous() == "unnamed.after.0");
  CHECK(names.take(allreduce("")).callers->request.name == "unnamed.1");
  const auto changes = names.changes_of_numbers();
  CHECK(names.take(allreduce("")).callers->request.name == "unnamed.2");
  CHECK(names.changes_of_numbers() != changes);
  CHECK(names.name_of_synchronous() == "unnamed.after.2");
  names.join_ended(true);
  CHECK(names.take(allreduce("")).callers->request.name == "unnamed.1");
}

TEST_CASE("After a join that was given up, numbers start anew beside the former ones") {
  Names names;
  CHECK(names.take(allreduce("")).callers->request.name == "unnamed.1");
  names.join_ended(false);
  CHECK(names.name_of_synchronous() == "unnamed.after.0.after.join.1");
  CHECK(names.take(allreduce("")).callers->request.name == "unnamed.1.after.join.1");
  CHECK(is_counted("unnamed.1.after.join.1"));
  CHECK_FALSE(is_counted(names.name_of_synchronous()));
  names.join_ended(true);
  CHECK(names.take(allreduce("")).callers->request.name == "unnamed.1.after.join.1");
}

TEST_CASE("Numbers that start anew do not meet operations that have ended and are still held") {
  Names names;
  std::vector<CallersSubmission> held;
  for (int i = 0; i < 3; ++i) {
    auto taken = names.take(allreduce(""));
    end(std::move(taken.engines));
    held.push_back(std::move(taken.callers));
  }
  names.join_ended(true);
  for (const CallersSubmission& earlier : held) {
    const auto next = names.take(allreduce(""));
    CHECK(next.callers->request.name == earlier->request.name);
    CHECK(next.callers.get() != earlier.get());
    CHECK(earlier->work.done());
  }
}

TEST_CASE("Of many names those in use are kept, and the others are forgotten in time") {
  Names names;
  std::vector<EnginesSubmission> held;
  for (int i = 0; i < 5000; ++i) {
    auto taken = names.take(allreduce("name." + std::to_string(i)));
    if (i % 10 == 0) held.push_back(std::move(taken.engines));
  }
  CHECK_FALSE(names.take_again(direct("name.1")));
  for (int i = 0; i < 5000; i += 10) CHECK(names.is_taken("name." + std::to_string(i)));
  held.clear();
  CHECK_FALSE(names.any());
}

TEST_CASE("Names that come again are recognised, however many others come between") {
  Names names;
  const auto take_all_again = [&names] {
    for (int i = 0; i < 1500; ++i) REQUIRE(names.take_again(direct("name." + std::to_string(i))));
  };
  // More than are new at a time.
  for (int i = 0; i < 1500; ++i) names.take(allreduce("name." + std::to_string(i)));
  take_all_again();
  SECTION("those that come once") {
    for (int i = 0; i < 10000; ++i) {
      names.take(allreduce("once." + std::to_string(i)));
      if (i % 500 == 0) take_all_again();
    }
    CHECK_FALSE(names.take_again(direct("once.5000")));
  }
  SECTION("made-up ones, which are forgotten first") {
    for (int i = 0; i < 600; ++i) names.take(allreduce(""));
    CHECK_FALSE(names.take_again(direct("unnamed.1")));
    take_all_again();
  }
}

TEST_CASE("The two may let go at the same time") {
  Names names;
  names.take(allreduce("x"));
  for (int i = 0; i < 2000; ++i) {
    auto taken = names.take_again(direct("x"));
    if (!taken) taken.emplace(names.take(allreduce("x")));
    std::thread engine([submission = std::move(taken->engines)]() mutable {
      submission->free_name();
      if (submission->work.complete(Status())) submission->work.wake();
    });
    if (i % 3 != 0) CHECK(taken->callers->wait(deadline_after(10s)));
    taken->callers.reset();
    if (i % 3 == 0) engine.join();
    if (i % 3 != 0) {
      auto next = names.take(allreduce("x"));
      engine.join();
    }
  }
}
