#include "core/bootstrap/store_origin.h"

#include <map>
#include <optional>
#include <vector>

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
