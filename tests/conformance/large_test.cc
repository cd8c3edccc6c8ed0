// Tensors of more than 2^31 bytes and elements: every count and offset is 64 bits wide.
#include <cstring>

#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

constexpr std::int64_t kElements = (std::int64_t{1} << 31) + 4097;

// Marks that no other element has: the first, the last, and those around 2^31.
const std::int64_t kMarks[] = {0, 1, (std::int64_t{1} << 31) - 1, std::int64_t{1} << 31, kElements - 1};

}  // namespace

TEST_CASE("tensors beyond 2^31 bytes", "[.long]") {
  const Layout layout = GENERATE(Layout{{2}}, Layout{{2}, false});
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    std::vector<std::uint8_t> data(static_cast<std::size_t>(kElements), static_cast<std::uint8_t>(t.rank + 1));
    for (std::size_t i = 0; i < std::size(kMarks); ++i) {
      data[static_cast<std::size_t>(kMarks[i])] = static_cast<std::uint8_t>(10 * i + static_cast<std::size_t>(t.rank));
    }
    const TensorArgument view{.data = data.data(), .dtype = DType::uint8, .shape = {kElements}};
    CallArguments sum{.name = "sum"};
    sum.inputs = sum.outputs = {view};
    perform(runtime, sum);
    for (std::size_t i = 0; i < std::size(kMarks); ++i) {
      require(data[static_cast<std::size_t>(kMarks[i])] == 20 * i + 1, "sum at " + std::to_string(kMarks[i]));
    }
    require(data[12345] == 3 && data[static_cast<std::size_t>(kElements - 2)] == 3, "sum between the marks");

    data.back() = static_cast<std::uint8_t>(100 + t.rank);
    CallArguments broadcast{.collective = Collective::broadcast, .name = "broadcast", .root = 1};
    broadcast.inputs = broadcast.outputs = {view};
    perform(runtime, broadcast);
    require(data.back() == 101, "the last element of a broadcast");
  }));
}

}  // namespace hvd::testing
