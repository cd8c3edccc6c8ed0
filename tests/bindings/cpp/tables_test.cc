// hvd/ps.hpp where the ranks serve themselves: tables, calls that overlap, errors.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "hvd.hpp"
#include "hvd/ps.hpp"
#include "tests/support/catch.h"

namespace {

// row -= times * gradient, if that is not negative
int subtract_times(float* rows, float*, const float* gradients, std::size_t count, std::size_t columns, std::size_t,
                   float, void* times) {
  for (std::size_t i = 0; i < count * columns; ++i) {
    if (gradients[i] < 0) return 1;
    rows[i] -= *static_cast<const float*>(times) * gradients[i];
  }
  return 0;
}

// Opens a table of one float in a row; `optimizer` may be null.
hvd_status open_table(hvd_ps* ps, const char* name, const hvd_ps_optimizer* optimizer) {
  hvd_ps_table table = HVD_PS_TABLE_INIT;
  table.name = name;
  table.optimizer = optimizer;
  std::int32_t number = -1;
  return hvd_ps_open(ps, &table, &number);
}

TEST_CASE("a table without an optimizer has the default one, and the optimizer has a size of its own") {
  const hvd::Session session;
  hvd_ps* ps = nullptr;
  REQUIRE(hvd_ps_connect(&ps) == HVD_OK);
  hvd_ps_optimizer optimizer = HVD_PS_OPTIMIZER_INIT;
  CHECK(open_table(ps, "one", nullptr) == HVD_OK);
  CHECK(open_table(ps, "one", &optimizer) == HVD_OK);  // alike
  optimizer.struct_size += 8;
  CHECK(open_table(ps, "two", &optimizer) == HVD_INVALID_ARGUMENT);
  CHECK(std::string(hvd_last_error()).find("hvd_ps_optimizer.struct_size") != std::string::npos);
  CHECK(hvd_ps_close(ps) == HVD_OK);
}

TEST_CASE("tables of all ranks") {
  float times = 3;
  hvd::ps::register_update("times", subtract_times, &times);  // before any rank can open the table here
  const hvd::Session session;
  hvd::ps::Servers servers;
  const auto size = static_cast<float>(hvd::size());
  const hvd::ps::Table table = servers.open({.name = "sums", .width = 2, .optimizer = {.rule = HVD_PS_ADD}});
  const std::vector<std::uint64_t> keys = {5, 6, 1u << 20};
  const std::vector<float> ones(6, 1.0f);
  std::vector<float> rows(6);
  table.push(keys, ones);
  {
    const hvd::ps::Call pushed = table.push_async(keys, ones);
    const hvd::ps::Call pulled = table.pull_async(keys, rows);
    pulled.wait();
    CHECK(pulled.ready());
    CHECK(pulled.version() >= 2);
    CHECK(rows[0] >= 2);
  }
  hvd::barrier();
  table.pull(keys, rows);
  CHECK(rows == std::vector<float>(6, 2 * size));
  CHECK_THROWS_AS(table.pull(keys, std::span(rows).first(5)), hvd::InvalidArgument);
  CHECK_THROWS_AS(servers.open({.name = "sums", .width = 3}), hvd::InvalidArgument);

  const hvd::ps::Table dense = servers.open({.name = "dense",
                                             .dense = true,
                                             .consistency = HVD_PS_SYNCHRONOUS,
                                             .rows = 3,
                                             .width = 4,
                                             .average = true,
                                             .optimizer = {.learning_rate = 0.5f},
                                             .filled = true});
  std::vector<float> values(10);
  std::iota(values.begin(), values.end(), 0.0f);
  if (hvd::rank() == 0) dense.fill(values);
  dense.push(std::vector<float>(10, 1.0f));
  servers.clock();
  std::vector<float> after(10);
  dense.pull(after);
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(after[i] == values[i] - 0.5f);
  CHECK(servers.stats().find("0 dense updates 1") != std::string::npos);

  const hvd::ps::Table own =
      servers.open({.name = "own", .optimizer = {.rule = HVD_PS_CUSTOM, .update = "times", .state = 1}, .cache = 1});
  const std::vector<std::uint64_t> mine = {static_cast<std::uint64_t>(hvd::rank())};
  const std::vector<float> two(1, 2.0f), negative(1, -1.0f);
  std::vector<float> row(1);
  own.push(mine, two);
  for (int pulls = 0; pulls < 2; ++pulls) own.pull(mine, row);
  CHECK(row[0] == -6);
  CHECK(own.cached() == 1);
  CHECK_THROWS_AS(own.push(mine, negative), hvd::InvalidArgument);
  CHECK_THROWS_AS(hvd::ps::Servers(), hvd::InvalidArgument);  // one connection at a time
  servers.close();
  CHECK_THROWS_AS(own.pull(mine, row), hvd::InvalidArgument);  // a closed connection is refused, and not followed
  CHECK_THROWS_AS(own.cached(), hvd::InvalidArgument);
}

}  // namespace
