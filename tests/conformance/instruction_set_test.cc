// What a processor can be told through the whole stack. HVD_INSTRUCTION_SET: the same bits with every set, and a
// refusal that says which there are. Rounding: a matter of the caller's own threads.
#include <cfenv>
#include <random>

#include "ops/reduction/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

const Layout kProcessorLayouts[] = {{{1}}, {{3}}, {{3}, false}, {{2, 2}}};

// Rank 0's average of all ranks' numbers.
std::vector<float> average_with(const Layout& layout, const std::string& instruction_set) {
  std::vector<float> result;
  run_ranks({.layout = layout, .environment = {{"HVD_INSTRUCTION_SET", instruction_set}}}, [&](Runtime& runtime) {
    std::fesetround(FE_TONEAREST);  // the same numbers, however the runtime was started
    std::vector<float> tensor(10'007);
    std::minstd_rand random(static_cast<unsigned>(runtime.topology().rank) + 1);
    for (float& value : tensor) value = static_cast<float>(random()) / 1000.0f;
    CallArguments call{.name = "tensor", .postscale = 1.0 / runtime.topology().size};
    call.inputs = call.outputs = {{.data = tensor.data(), .shape = {static_cast<std::int64_t>(tensor.size())}}};
    perform(runtime, call);
    if (runtime.topology().rank == 0) result = tensor;
  });
  return result;
}

}  // namespace

TEST_CASE("every instruction set that there is gives the same bits") {
  const auto& layout = GENERATE(from_range(std::begin(kProcessorLayouts), std::end(kProcessorLayouts)));
  INFO(layout.name());
  const std::vector<float> expected = average_with(layout, "auto");
  for (const InstructionSet set : available_instruction_sets()) {
    INFO(instruction_set_name(set));
    const bool same = average_with(layout, instruction_set_name(set)) == expected;
    CHECK(same);
  }
}

TEST_CASE("how the starting thread rounds changes no bit") {
  const auto& layout = GENERATE(from_range(std::begin(kProcessorLayouts), std::end(kProcessorLayouts)));
  INFO(layout.name());
  const std::vector<float> expected = average_with(layout, "auto");
  std::fesetround(FE_UPWARD);
  const bool same = average_with(layout, "auto") == expected;
  std::fesetround(FE_TONEAREST);
  CHECK(same);
}

TEST_CASE("an instruction set that there is not is refused by init") {
  const auto& layout = GENERATE(from_range(std::begin(kProcessorLayouts), std::end(kProcessorLayouts)));
  INFO(layout.name());
  std::string text;
  try {
    average_with(layout, "mmx");
  } catch (const std::exception& error) {
    text = error.what();
  }
  CHECK(text.find("HVD_INSTRUCTION_SET='mmx': expected auto or what this processor has: scalar") != std::string::npos);
}

}  // namespace hvd::testing
