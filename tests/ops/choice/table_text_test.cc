#include "ops/choice/table_text.h"

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("sizes are written as HVD_ALGORITHM reads them") {
  CHECK(size_text(0) == "0");
  CHECK(size_text(112) == "112");
  CHECK(size_text(1024) == "1k");
  CHECK(size_text(1280) == "1280");
  CHECK(size_text(64 << 10) == "64k");
  CHECK(size_text(3 << 20) == "3m");
  CHECK(size_text(std::size_t{5} << 30) == "5g");
  CHECK(size_text(std::size_t{2048} << 30) == "2048g");
  CHECK(range_text(0, 4096) == "0-4k");
  CHECK(range_text(4096, kNoLimit) == "4k-");
}

TEST_CASE("times and rates are written with two digits or three") {
  CHECK(time_text(0) == "0.0 us");
  CHECK(time_text(0.2e-6) == "0.2 us");
  CHECK(time_text(9.94e-6) == "9.9 us");
  CHECK(time_text(9.96e-6) == "10 us");
  CHECK(time_text(31e-6) == "31 us");
  CHECK(time_text(999.7e-6) == "1.0 ms");
  CHECK(time_text(1.34e-3) == "1.3 ms");
  CHECK(time_text(2.5) == "2.5 s");
  CHECK(time_text(5000) == "5000 s");
  CHECK(rate_text(8e-9) == "125 MB/s");
  CHECK(rate_text(0.1e-9) == "10 GB/s");
}

TEST_CASE("a table's columns are aligned") {
  const TableLine lines[] = {{.from = 0, .to = 113, .name = "note", .reason = "small"},
                             {.from = 113, .to = kNoLimit, .name = "one_step", .reason = "large"}};
  CHECK(table_text(lines) ==
        "  0-113  note      small\n"
        "  113-   one_step  large\n");
}
