// Rows by key, against std::unordered_map.
#include "parameters/row_table.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "tests/support/catch.h"

namespace hvd {
namespace {

TEST_CASE("rows are found as long as they are there") {
  for (const std::size_t floats : {std::size_t{1}, std::size_t{13}, std::size_t{100'000}}) {
    const int steps = floats > 1000 ? 300 : 20'000;
    std::mt19937_64 dice(floats);
    RowTable table(floats);
    std::unordered_map<std::uint64_t, float> expected;
    std::vector<std::uint64_t> keys(static_cast<std::size_t>(steps) / 8);
    // Neighbours, keys that differ in their upper bits alone, and any.
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i % 3 == 0 ? i : i % 3 == 1 ? i << 40 : dice();
    for (int step = 0; step < steps; ++step) {
      const std::uint64_t key = keys[dice() % keys.size()];
      RowTable::Row* const row = table.find(key);
      REQUIRE((row != nullptr) == expected.contains(key));
      const bool grows = step < steps / 2 || step > steps * 3 / 4;
      if (row == nullptr && dice() % 4 < (grows ? 3 : 1)) {
        RowTable::Row& added = table.insert(key);
        REQUIRE(reinterpret_cast<std::uintptr_t>(&added) % 64 == 0);
        std::fill_n(added.values(), floats, static_cast<float>(step));
        expected[key] = static_cast<float>(step);
      } else if (row != nullptr && dice() % 4 < (grows ? 1 : 3)) {
        table.remove(key);
        expected.erase(key);
      } else if (row != nullptr) {
        REQUIRE(row->key == key);
        REQUIRE(row->values()[0] == expected[key]);
        REQUIRE(row->values()[floats - 1] == expected[key]);
      } else {
        table.remove(key);  // nothing
      }
      REQUIRE(table.size() == expected.size());
    }
    std::size_t there = 0;
    for (std::size_t number = 0; number < table.end(); ++number) {
      const RowTable::Row* const row = table.at(number);
      if (row == nullptr) continue;
      ++there;
      REQUIRE(expected.contains(row->key));
      REQUIRE(table.find(row->key) == row);
    }
    CHECK(there == expected.size());
    CHECK(table.at(table.end()) == nullptr);
  }
}

TEST_CASE("rows do not move, and the memory of removed ones is used again") {
  RowTable table(5);
  std::vector<RowTable::Row*> rows;
  for (std::uint64_t key = 0; key < 5000; ++key) {
    rows.push_back(&table.insert(key));
    rows.back()->values()[0] = static_cast<float>(key);
  }
  for (std::uint64_t key = 0; key < 5000; ++key) {
    REQUIRE(table.find(key) == rows[key]);
    REQUIRE(rows[key]->values()[0] == static_cast<float>(key));
  }
  const std::size_t end = table.end();
  const std::set<RowTable::Row*> all(rows.begin(), rows.end());
  for (std::uint64_t key = 0; key < 5000; key += 2) table.remove(key);
  for (std::uint64_t key = 10'000; key < 12'500; ++key) REQUIRE(all.contains(&table.insert(key)));
  CHECK(table.end() == end);
  CHECK(table.size() == 5000);
}

TEST_CASE("memory is told before it is taken") {
  std::mt19937 dice(4);
  for (const std::size_t floats : {std::size_t{3}, std::size_t{1000}}) {
    RowTable table(floats);
    std::uint64_t key = 0;
    for (int round = 0; round < 30; ++round) {
      const std::size_t more = dice() % 700, vacant = table.size() > 100 ? dice() % 100 : 0;
      for (std::size_t i = 0; i < vacant; ++i) table.remove(key - 1 - i);
      const std::size_t before = table.bytes(), told = table.bytes_of_more(more);
      for (std::size_t i = 0; i < more; ++i) table.insert(key++);
      // The list of vacant rows, at most 3000, counts too and gets shorter.
      REQUIRE(table.bytes() <= before + told);
      REQUIRE(table.bytes() + 3000 * sizeof(std::uint32_t) >= before + told);
    }
  }
}

}  // namespace
}  // namespace hvd
