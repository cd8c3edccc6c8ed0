#include "core/base/cpus.h"

#include <sched.h>

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("this process may run on the CPU on which it runs") {
  const auto cpu = static_cast<std::size_t>(sched_getcpu());
  const std::vector<std::uint64_t> words = allowed_cpus();
  REQUIRE(words.size() > cpu / 64);
  CHECK((words[cpu / 64] >> (cpu % 64) & 1) == 1);
  CHECK(words.back() != 0);
}

TEST_CASE("lists of CPUs are read as the kernel writes them") {
  using Numbers = std::vector<int>;
  CHECK(parse_cpu_numbers("0-3,8") == Numbers{0, 1, 2, 3, 8});
  CHECK(parse_cpu_numbers("5") == Numbers{5});
  for (const char* text : {"", "x", "0-", "1,,2", "99999999999", "-1", "0-99999999"})
    CHECK(parse_cpu_numbers(text).empty());
}
