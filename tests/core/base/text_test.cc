#include "core/base/text.h"

#include "tests/support/catch.h"

namespace hvd::testing {

TEST_CASE("a list has the parts between its separators that are not empty") {
  CHECK(split_list("", ':').empty());
  CHECK(split_list("/a.so", ':') == std::vector<std::string>{"/a.so"});
  CHECK(split_list(":/a.so::b.so:", ':') == std::vector<std::string>{"/a.so", "b.so"});
  CHECK(split_list("eth0,ib:0", ',') == std::vector<std::string>{"eth0", "ib:0"});
}

TEST_CASE("words are compared in lower case") { CHECK(in_lower_case("PPR:2:Node_ä") == "ppr:2:node_ä"); }

TEST_CASE("lists of ranks stay short") {
  CHECK(ranges_text({}) == "");
  CHECK(ranges_text({3}) == "3");
  CHECK(ranges_text({2, 5}) == "2, 5");
  CHECK(ranges_text({0, 1, 2, 5, 6, 8}) == "0-2, 5, 6, 8");
  std::vector<int> many(100, 7);
  CHECK(ranges_text(many).ends_with("7 and 84 more"));
}

}  // namespace hvd::testing
