#include "core/base/text.h"

#include "tests/support/catch.h"

namespace hvd::testing {

TEST_CASE("a list has the parts between its separators that are not empty") {
  CHECK(split_list("", ':').empty());
  CHECK(split_list("/a.so", ':') == std::vector<std::string>{"/a.so"});
  CHECK(split_list(":/a.so::b.so:", ':') == std::vector<std::string>{"/a.so", "b.so"});
  CHECK(split_list("eth0,ib:0", ',') == std::vector<std::string>{"eth0", "ib:0"});
}

}  // namespace hvd::testing
