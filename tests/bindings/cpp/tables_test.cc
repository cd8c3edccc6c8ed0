// hvd/ps.hpp where the ranks serve themselves: tables, calls that overlap, errors.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "hvd.hpp"
#include "hvd/ps.hpp"
#include "tests/support/catch.h"

namespace {

TEST_CASE("tables of all ranks") {
  const hvd::Session session;
  hvd::ps::Servers servers;
  const auto size = static_cast<float>(hvd::size());
  const hvd::ps::Table table = servers.open({.name = "sums", .width = 2, .rule = HVD_PS_ADD});
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
                                             .learning_rate = 0.5f,
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
  servers.close();
}

}  // namespace
