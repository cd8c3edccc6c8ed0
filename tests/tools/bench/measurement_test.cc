#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "tests/support/catch.h"
#include "tools/bench/measurement.h"

namespace hvd::bench {

namespace {

TEST_CASE("a quantile is one of the values, however few and in whatever order") {
  CHECK(quantile({7}, 0.5) == 7);
  CHECK(quantile({7}, 0.99) == 7);
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({4, 1, 3, 2}, 0.5) == 2);
  CHECK(quantile({4, 1, 3, 2}, 0.99) == 4);
  CHECK(quantile({4, 1, 3, 2}, 0.001) == 1);
  std::vector<double> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1);
  CHECK(quantile(hundred, 0.99) == 99);
  CHECK(quantile(hundred, 1) == 100);
}

const Job kJob{.ranks = 4, .hosts = 2, .version = "1.2.3"};

const Measured kRow{.bytes = 1 << 20,
                    .tensors = 1,
                    .calls = 3,
                    .rounds = 17,
                    .min_us = 100,
                    .median_us = 123.456,
                    .p99_us = 200.5,
                    .algbw = 8.4935,
                    .busbw = 12.74,
                    .errors = 0};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("the heading says what is measured where") {
  const std::string text = heading(parse_command_line({"--arena", "--tensors", "4x1K", "--grouped", "-w", "3"}), kJob);
  CHECK(contains(text, "# hvd 1.2.3 allreduce, 4 ranks on 2 hosts\n"));
  CHECK(contains(text, "shared arena, in place, one group, 0.5 s a row after 3 rounds of warm-up"));
  CHECK_FALSE(contains(text, "one rank"));
  const std::string alone = heading(parse_command_line({"barrier"}), {.ranks = 1, .hosts = 1, .version = "1"});
  CHECK(contains(alone, "1 rank on 1 host\n"));
  CHECK(contains(alone, "hvd bench -np 4"));
  CHECK_FALSE(contains(alone, "memory"));
}

TEST_CASE("a row stands under the names of its columns") {
  const Settings settings = parse_command_line({"-d", "float16", "-o", "average"});
  const std::string row = table_row(settings, kRow);
  CHECK(words_of(row) == std::vector<std::string>{"1048576", "1", "float16", "average", "100.00", "123.46", "200.50",
                                                  "8.493", "12.740", "0"});
  const std::string text = heading(settings, kJob);
  const std::string titles = text.substr(text.rfind("#"));
  CHECK(titles.size() == row.size());
  CHECK(titles.find("median us") + 9 == row.find("123.46") + 6);
}

TEST_CASE("a row with wrong results is marked") {
  Measured wrong = kRow;
  wrong.errors = 12;
  CHECK(words_of(table_row(parse_command_line({}), wrong)).back() == "WRONG");
  CHECK_FALSE(contains(table_row(parse_command_line({}), kRow), "WRONG"));
}

TEST_CASE("JSON has all of it") {
  const auto json = nlohmann::json::parse(json_text(parse_command_line({"--in-place"}), kJob, {kRow, kRow}));
  CHECK(json["version"] == "1.2.3");
  CHECK(json["ranks"] == 4);
  CHECK(json["hosts"] == 2);
  CHECK(json["collective"] == "allreduce");
  CHECK(json["dtype"] == "float32");
  CHECK(json["op"] == "sum");
  CHECK(json["in_place"] == true);
  REQUIRE(json["results"].size() == 2);
  CHECK(json["results"][1]["bytes"] == 1 << 20);
  CHECK(json["results"][1]["median_us"] == 123.456);
  CHECK(json["results"][1]["errors"] == 0);
  CHECK(nlohmann::json::parse(json_text(parse_command_line({"barrier"}), kJob, {}))["dtype"] == "none");
}

}  // namespace

}  // namespace hvd::bench
