#include "ops/reduction/instruction_set.h"

#include <algorithm>

#include "core/base/error.h"
#include "ops/reduction/reduce.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

constexpr InstructionSet kAll[] = {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512,
                                   InstructionSet::neon};

bool is_available(InstructionSet set) {
  const auto sets = available_instruction_sets();
  return std::find(sets.begin(), sets.end(), set) != sets.end();
}

TEST_CASE("instruction sets: those that are there can be asked for, the others are refused") {
  CHECK(is_available(InstructionSet::scalar));
  CHECK(instruction_set_from("auto") == InstructionSet::automatic);
  for (const InstructionSet set : kAll) {
    const std::string name = instruction_set_name(set);
    const float value = 1.5f;
    float out = 0;
    const void* const inputs[] = {&value, &value};
    const Reduction reduction{.instruction_set = set};
    INFO(name);
    if (is_available(set)) {
      CHECK(instruction_set_from(name) == set);
      reduce(reduction, DType::float32, inputs, DType::float32, &out, 1);
      CHECK(out == 3.0f);
    } else {
      CHECK_THROWS_AS(instruction_set_from(name), InvalidArgument);
      CHECK_THROWS_AS(reduce(reduction, DType::float32, inputs, DType::float32, &out, 1), Internal);
      CHECK(out == 0.0f);
    }
  }
}

TEST_CASE("instruction sets: who asks for what is not there hears what is") {
  for (const char* name : {"", "avx9", "AVX2", "scalar,avx2"}) {
    try {
      instruction_set_from(name);
      FAIL(std::string("'") + name + "' was taken for an instruction set");
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      CHECK(text.starts_with(std::string("HVD_INSTRUCTION_SET='") + name + "'"));
      for (const InstructionSet set : available_instruction_sets()) {
        CHECK(text.find(instruction_set_name(set)) != std::string::npos);
      }
    }
  }
}

TEST_CASE("instruction sets: no processor has both AVX and NEON") {
  CHECK_FALSE((is_available(InstructionSet::neon) && is_available(InstructionSet::avx2)));
}

}  // namespace
}  // namespace hvd
