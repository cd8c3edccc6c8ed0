#include "launcher/marked_processes.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("a mark is a whole variable") {
  using namespace std::string_view_literals;
  CHECK(carries_mark("A=1\0KEY=1\0B=2\0"sv, "KEY=1"));
  CHECK(carries_mark("KEY=1"sv, "KEY=1"));
  for (const auto environment : {""sv, "\0\0"sv, "KEY=12\0"sv, "MY_KEY=1\0"sv, "A=KEY=1\0"sv, "KEY=\0"sv}) {
    CHECK_FALSE(carries_mark(environment, "KEY=1"));
  }
}

TEST_CASE("where nothing is marked two looks suffice") {
  CHECK(kill_marked("HVD_TEST_MARK=nobody's", deadline_after(5s)));
}

TEST_CASE("of a mark of several variables none may be missing") {
  const std::string mark("KEY=1\0STORE=a", 13);
  CHECK(carries_mark(std::string("STORE=a\0PATH=/\0KEY=1\0", 22), mark));
  CHECK_FALSE(carries_mark(std::string("KEY=1\0STORE=b\0", 14), mark));
  CHECK_FALSE(carries_mark(std::string("STORE=a\0", 8), mark));
}

}  // namespace
}  // namespace hvd::launcher
