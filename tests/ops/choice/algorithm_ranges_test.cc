#include <string>

#include "core/base/error.h"
#include "ops/choice/algorithm_ranges.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

// "0-64k=direct 64k-=ring"
std::string written(const AlgorithmOverride& wanted) {
  std::string text;
  for (const auto& range : wanted.allreduce) {
    text += (text.empty() ? "" : " ") + range_text(range.from, range.to) + "=" + algorithm_name(range.algorithm);
  }
  for (const auto& range : wanted.inside_host) {
    text += (text.empty() ? "" : " ") + range_text(range.from, range.to) + "=" + form_name(range.algorithm);
  }
  return text;
}

}  // namespace

TEST_CASE("what HVD_ALGORITHM may say") {
  struct Case {
    const char *text, *ranges;
  };
  const auto c = GENERATE(values<Case>({
      {"", ""},
      {"allreduce:0-64k=direct;64k-=ring", "0-64k=direct 64k-=ring"},
      {"allreduce:64k-=ring;0-64k=direct", "0-64k=direct 64k-=ring"},  // in any order
      {"allreduce:-=ring", "0-=ring"},
      {"allreduce:-1k=one_shot", "0-1k=one_shot"},
      {"allreduce:1m-2m=halving_doubling;3g-4g=direct", "1m-2m=halving_doubling 3g-4g=direct"},  // with holes
      {"allreduce:0-1=ring;1-2=direct", "0-1=ring 1-2=direct"},
      {"allreduce:1m-=reading;-1m=sliced;-=ring", "0-=ring 0-1m=sliced 1m-=reading"},  // shared memory by itself
  }));
  CAPTURE(c.text);
  CHECK(written(parse_algorithm_override(c.text, false)) == c.ranges);
}

TEST_CASE("a range has its first size and not its last") {
  const auto wanted = parse_algorithm_override("allreduce:1k-2k=direct;2k-3k=ring", true);
  CHECK(wanted.find(0) == nullptr);
  CHECK(wanted.find(1023) == nullptr);
  CHECK(wanted.find(1024)->algorithm == AllreduceAlgorithm::direct);
  CHECK(wanted.find(2047)->algorithm == AllreduceAlgorithm::direct);
  CHECK(wanted.find(2048)->algorithm == AllreduceAlgorithm::ring);
  CHECK(wanted.find(3072) == nullptr);
  CHECK(AlgorithmOverride{}.find(0) == nullptr);
}

TEST_CASE("what HVD_ALGORITHM may not say is quoted, with what is wrong and what is allowed") {
  struct Case {
    const char *text, *wrong;
  };
  const auto c = GENERATE(values<Case>({
      {"ring", "does not begin with 'allreduce:'"},
      {"broadcast:0-=ring", "does not begin with 'allreduce:'"},
      {" allreduce:0-=ring", "does not begin with 'allreduce:'"},
      {"allreduce:", "'' is not FROM-TO=ALGORITHM"},
      {"allreduce:0-64k=direct;", "'' is not FROM-TO=ALGORITHM"},
      {"allreduce:ring", "'ring' is not FROM-TO=ALGORITHM"},
      {"allreduce:64k=ring", "'64k=ring' is not FROM-TO=ALGORITHM"},
      {"allreduce:0-64k", "'0-64k' is not FROM-TO=ALGORITHM"},
      {"allreduce:0-64k=", "'' is no algorithm"},
      {"allreduce:0-64k=rign", "'rign' is no algorithm"},
      {"allreduce:0-64k=direct=ring", "'direct=ring' is no algorithm"},
      {"allreduce:0-64q=ring", "'64q' is no size"},
      {"allreduce:0-64kb=ring", "'64kb' is no size"},
      {"allreduce:0 -64k=ring", "'0 ' is no size"},
      {"allreduce:x-=ring", "'x' is no size"},
      {"allreduce:0--1=ring", "'-1' is no size"},
      {"allreduce:0-99999999999999999999=ring", "'99999999999999999999' is no size"},
      {"allreduce:0-99999999999g=ring", "'99999999999g' is no size"},
      {"allreduce:64k-64k=ring", "'64k-64k=ring' has no sizes"},
      {"allreduce:2k-1k=ring", "'2k-1k=ring' has no sizes"},
      {"allreduce:0-64k=direct;32k-=ring", "'0-64k' and '32k-' overlap"},
      {"allreduce:32k-=ring;0-64k=direct", "'0-64k' and '32k-' overlap"},
      {"allreduce:-=direct;-=ring", "'0-' and '0-' overlap"},
      {"allreduce:-=sliced;1k-=reading", "'0-' and '1k-' overlap"},
      {"allreduce:0-64=inline_payload", "'inline_payload' is no algorithm"},
      {"allreduce:0-1m=halving_doubling", "HVD_DETERMINISTIC=0"},
  }));
  CAPTURE(c.text);
  try {
    parse_algorithm_override(c.text, true);
    FAIL_CHECK("accepted");
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    CAPTURE(message);
    CHECK(message.find("HVD_ALGORITHM='" + std::string(c.text) + "': ") == 0);
    CHECK(message.find(c.wrong) != std::string::npos);
    CHECK(message.find("'allreduce:0-64k=direct;64k-=ring'") != std::string::npos);
    CHECK(message.find("one_shot, bruck, direct, halving_doubling, ring between hosts, and one_step, sliced, "
                       "resident, reading inside a host") != std::string::npos);
  }
}

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
  const TableLine lines[] = {{.from = 0, .to = 113, .name = "inline_payload", .reason = "small"},
                             {.from = 113, .to = kNoLimit, .name = "one_step", .reason = "large"}};
  CHECK(table_text(lines) ==
        "  0-113  inline_payload  small\n"
        "  113-   one_step        large\n");
}
