#include "core/bootstrap/store_origin.h"

#include <limits>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

// Asks, and notes each answer as "<who>: <code> <text>".
struct Desk {
  StoreOrigin origin{10'000};
  std::vector<std::string> answers;

  StoreSource::RequestId ask(const std::string& who, StoreRequest request) {
    return origin.ask(std::move(request), [this, who](StatusCode code, std::string_view text) {
      answers.push_back(who + ": " + std::string(status_code_name(code)) + " " + std::string(text));
    });
  }
  StoreSource::RequestId get(const std::string& who, const std::string& key) {
    return ask(who, {.operation = StoreOperation::get, .key = key});
  }
  void set(const std::string& who, const std::string& key, const std::string& value) {
    CHECK(ask(who, {.operation = StoreOperation::set, .key = key, .value = value}) == 0);
  }
  std::vector<std::string> take() { return std::exchange(answers, {}); }
};

using Answers = std::vector<std::string>;

}  // namespace

TEST_CASE("values and counters") {
  StoreTable table;
  CHECK(table.find("k") == nullptr);
  table.set("k", "one");
  CHECK(*table.find("k") == "one");
  table.set("k", "two");
  CHECK(*table.find("k") == "two");
  CHECK(table.add("k", 5) == 5);  // a name space of its own
  CHECK(table.add("k", -7) == -2);
  CHECK(*table.find("k") == "two");
}

TEST_CASE("keys and values have limits") {
  StoreTable table;
  CHECK_NOTHROW(table.set(std::string(kMaxStoreKeyBytes, 'k'), std::string(kMaxStoreValueBytes, 'v')));
  CHECK_THROWS_AS(table.set(std::string(kMaxStoreKeyBytes + 1, 'k'), ""), InvalidArgument);
  CHECK_THROWS_AS(table.set("k", std::string(kMaxStoreValueBytes + 1, 'v')), InvalidArgument);
  CHECK_THROWS_AS(table.add(std::string(kMaxStoreKeyBytes + 1, 'k'), 1), InvalidArgument);
  CHECK(table.find("k") == nullptr);
}

TEST_CASE("a full store refuses what is new and keeps what it has") {
  StoreTable table(10'000);
  table.set("large", std::string(9'000, 'x'));
  CHECK_THROWS_WITH(table.set("another", std::string(1'000, 'y')), Catch::Matchers::Contains("full"));
  CHECK(table.find("another") == nullptr);
  CHECK_THROWS_AS(table.set("large", std::string(12'000, 'x')), InvalidArgument);
  CHECK(table.find("large")->size() == 9'000);
  table.set("large", "");  // replaced, so there is room again
  CHECK_NOTHROW(table.set("another", std::string(1'000, 'y')));
}

TEST_CASE("empty entries count too") {
  StoreTable table(10'000);
  const auto fill_with_values = [&] {
    for (int i = 0; i < 1'000; ++i) table.set(std::to_string(i), "");
  };
  const auto fill_with_counters = [&] {
    for (int i = 0; i < 1'000; ++i) table.add(std::to_string(i), 1);
  };
  CHECK_THROWS_AS(fill_with_values(), InvalidArgument);
  CHECK_THROWS_AS(fill_with_counters(), InvalidArgument);
}

TEST_CASE("a counter does not wrap around") {
  StoreTable table;
  table.add("n", std::numeric_limits<std::int64_t>::max());
  CHECK_THROWS_AS(table.add("n", 1), InvalidArgument);
  CHECK(table.add("n", 0) == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("what is there is answered at once, what is not waits") {
  Desk desk;
  CHECK(desk.get("a", "k") != 0);
  CHECK(desk.get("b", "other") != 0);
  CHECK(desk.get("c", "k") != 0);
  CHECK(desk.take().empty());
  desk.set("d", "k", "value");
  CHECK(desk.take() == Answers{"d: ok ", "a: ok value", "c: ok value"});
  CHECK(desk.get("e", "k") == 0);
  CHECK(desk.take() == Answers{"e: ok value"});
  CHECK(desk.origin.parked() == 1);
}

TEST_CASE("counters are a name space of their own") {
  Desk desk;
  desk.get("a", "k");
  CHECK(desk.ask("b", {.operation = StoreOperation::add, .key = "k", .amount = 5}) == 0);
  CHECK(desk.ask("b", {.operation = StoreOperation::add, .key = "k", .amount = -7}) == 0);
  CHECK(desk.take() == Answers{"b: ok 5", "b: ok -2"});
}

TEST_CASE("who is forgotten hears nothing, and the others all the same") {
  Desk desk;
  const auto a = desk.get("a", "k");
  desk.get("b", "k");
  const auto c = desk.get("c", "lonely");
  desk.origin.forget(a);
  desk.origin.forget(a);
  desk.origin.forget(c);
  desk.origin.forget(0);
  CHECK(desk.origin.parked() == 1);
  desk.set("d", "k", "value");
  desk.set("d", "lonely", "value");
  CHECK(desk.take() == Answers{"d: ok ", "b: ok value", "d: ok "});
}

TEST_CASE("what the table refuses is refused, and parks nobody") {
  Desk desk;
  const std::string long_key(kMaxStoreKeyBytes + 1, 'k');
  CHECK(desk.get("a", long_key) == 0);
  desk.set("b", "k", std::string(20'000, 'v'));
  const auto answers = desk.take();
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].starts_with("a: invalid argument a store key of 4097 bytes"));
  CHECK(answers[1].starts_with("b: invalid argument the store is full"));
  CHECK(desk.origin.parked() == 0);
}

TEST_CASE("an answer may ask and forget") {
  StoreOrigin origin;
  std::vector<std::string> heard;
  StoreSource::RequestId second = 0;
  const StoreRequest get{.operation = StoreOperation::get, .key = "k"};
  origin.ask(get, [&](StatusCode, std::string_view) {
    heard.emplace_back("first");
    origin.forget(second);
    origin.ask(get, [&](StatusCode, std::string_view text) { heard.emplace_back(text); });
  });
  second = origin.ask(get, [&](StatusCode, std::string_view) { heard.emplace_back("second"); });
  origin.ask({.operation = StoreOperation::set, .key = "k", .value = "v"}, [](StatusCode, std::string_view) {});
  CHECK(heard == std::vector<std::string>{"first", "v"});
  CHECK(origin.parked() == 0);
}

TEST_CASE("the job's failure is a key without an epoch") {
  Desk desk;
  set_job_failure(desk.origin, "rank 2 on h2 has failed: killed by SIGKILL");
  desk.get("a", kJobFailureKey);
  CHECK(desk.take() == Answers{"a: ok rank 2 on h2 has failed: killed by SIGKILL"});
}
