#include "core/bootstrap/store_table.h"

#include <limits>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

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
