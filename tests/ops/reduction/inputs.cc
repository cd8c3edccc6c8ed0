#include "tests/ops/reduction/inputs.h"

#include <bit>
#include <cstring>
#include <random>

#include "tests/support/catch.h"

namespace hvd {

namespace {

struct FloatFields {
  int exponent_bits, fraction_bits;
};

std::vector<std::uint64_t> special_floats(FloatFields fields) {
  const auto [exponent_bits, fraction_bits] = fields;
  const std::uint64_t one_exponent = std::uint64_t{1} << fraction_bits;
  const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << fraction_bits;
  const std::uint64_t one = infinity / 2 / one_exponent * one_exponent;
  const std::uint64_t quiet = one_exponent / 2;
  std::vector<std::uint64_t> values{
      0,
      1,                 // the least denormal
      one_exponent / 3,  // one in the middle
      one_exponent - 1,  // the greatest
      one_exponent,      // the least normal number
      one_exponent + 1,
      one - static_cast<std::uint64_t>(fraction_bits + 1) * one_exponent,  // half of the last place of 1: a tie
      one - 1,
      one,
      one + 1,
      one + one_exponent / 2,
      one + static_cast<std::uint64_t>(fraction_bits + 1) * one_exponent,  // where 1 is half of the last place
      infinity - one_exponent,                                             // its double is infinite
      infinity - 1,                                                        // the greatest
      infinity,
      infinity | 1,          // signalling NaN
      infinity | quiet,      // quiet NaN
      infinity | quiet | 3,  // with a payload
  };
  const std::uint64_t sign = std::uint64_t{1} << (exponent_bits + fraction_bits);
  for (std::size_t i = 0, n = values.size(); i < n; ++i) values.push_back(values[i] | sign);
  return values;
}

std::vector<std::uint64_t> special_integers(DType dtype) {
  if (dtype == DType::boolean) return {0, 1};
  const auto bits = static_cast<int>(8 * size_of(dtype));
  const std::uint64_t top = std::uint64_t{1} << (bits - 1);
  const std::uint64_t all = top | (top - 1);
  return {0, 1, 2, 3, 7, 49, 100, top - 1, top - 2, top, top + 1, all, all - 1, all / 3, all / 5 * 3};
}

std::uint64_t random_bits(DType dtype, std::mt19937_64& random) {
  return dtype == DType::boolean ? random() % 2 : random();
}

std::uint64_t ordinary_number(DType dtype, std::mt19937_64& random) {
  const float number = std::normal_distribution<float>()(random);
  const double wide = number;
  switch (dtype) {
    case DType::float16: return kFloat16.nearest(wide);
    case DType::bfloat16: return kBfloat16.nearest(wide);
    case DType::float32: return std::bit_cast<std::uint32_t>(number);
    case DType::float64: return std::bit_cast<std::uint64_t>(wide);
    default: return random_bits(dtype, random);
  }
}

// Fills with what `next` gives.
template <typename Next>
Inputs filled(DType dtype, std::size_t count, std::size_t elements, Next next) {
  Inputs inputs(dtype, count, elements);
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < elements; ++i) inputs.set(k, i, next());
  }
  return inputs;
}

// One call of reduce(), between guards.
void check_one(const Reduction& reduction, DType in_type, const Inputs& inputs, DType out_type, std::size_t elements,
               const Buffer& expected) {
  const std::size_t size = size_of(out_type);
  constexpr std::byte kGuard{0x5a};
  Buffer out((elements + 2) * size, kGuard), wanted(out);
  if (elements > 0) std::memcpy(wanted.data() + size, expected.data(), elements * size);
  reduce(reduction, in_type, inputs.pointers(), out_type, out.data() + size, elements);
  if (out == wanted) return;
  std::size_t wrong = 0;
  while (out[wrong] == wanted[wrong]) ++wrong;
  INFO(describe(reduction, inputs.pointers().size(), elements) << ": the first wrong element is " << wrong / size - 1);
  REQUIRE(out == wanted);
}

}  // namespace

std::vector<DType> all_dtypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (const auto dtype = static_cast<DType>(i); !only_moves(dtype)) dtypes.push_back(dtype);
  }
  return dtypes;
}

std::vector<std::uint64_t> special_values(DType dtype) {
  switch (dtype) {
    case DType::float16: return special_floats({.exponent_bits = 5, .fraction_bits = 10});
    case DType::bfloat16: return special_floats({.exponent_bits = 8, .fraction_bits = 7});
    case DType::float32: return special_floats({.exponent_bits = 8, .fraction_bits = 23});
    case DType::float64: return special_floats({.exponent_bits = 11, .fraction_bits = 52});
    default: return special_integers(dtype);
  }
}

Inputs::Inputs(DType dtype, std::size_t count, std::size_t elements) : dtype_(dtype), elements_(elements) {
  for (std::size_t k = 0; k < count; ++k) memory_.emplace_back((elements + k) * size_of(dtype));
}

std::vector<const void*> Inputs::pointers() const {
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < memory_.size(); ++k) pointers.push_back(memory_[k].data() + k * size_of(dtype_));
  return pointers;
}

void Inputs::set(std::size_t input, std::size_t element, std::uint64_t bits) {
  std::memcpy(data(input) + element * size_of(dtype_), &bits, size_of(dtype_));
}

Inputs ordinary_inputs(DType dtype, std::size_t count, std::size_t elements, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return filled(dtype, count, elements, [&] { return ordinary_number(dtype, random); });
}

Inputs mixed_inputs(DType dtype, std::size_t count, std::size_t elements, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto special = special_values(dtype);
  return filled(dtype, count, elements, [&] {
    switch (random() % 3) {
      case 0: return special[random() % special.size()];
      case 1: return random_bits(dtype, random);
      default: return ordinary_number(dtype, random);
    }
  });
}

Inputs all_combinations(DType dtype, std::size_t count) {
  const auto special = special_values(dtype);
  std::size_t elements = 1;
  for (std::size_t k = 0; k < count; ++k) elements *= special.size();
  Inputs inputs(dtype, count, elements);
  for (std::size_t i = 0; i < elements; ++i) {
    std::size_t digits = i;
    for (std::size_t k = 0; k < count; ++k, digits /= special.size())
      inputs.set(k, i, special[digits % special.size()]);
  }
  return inputs;
}

std::string describe(const Reduction& reduction, std::size_t count, std::size_t elements) {
  return std::string(instruction_set_name(reduction.instruction_set)) + ": " + reduce_op_name(reduction.op) + " of " +
         std::to_string(count) + " inputs, " + std::to_string(elements) + " elements of " +
         dtype_name(reduction.dtype) + ", scaled by " + std::to_string(reduction.prescale) + " and " +
         std::to_string(reduction.postscale);
}

void check_all_sets(Reduction reduction, DType in_type, const Inputs& inputs, DType out_type,
                    const std::vector<std::size_t>& lengths) {
  const Buffer expected = wide_reference(reduction, in_type, inputs.pointers(), out_type, inputs.elements());
  for (const InstructionSet set : available_instruction_sets()) {
    reduction.instruction_set = set;
    for (const std::size_t elements : lengths) check_one(reduction, in_type, inputs, out_type, elements, expected);
  }
}

void check_all_sets(const Reduction& reduction, const Inputs& inputs) {
  check_all_sets(reduction, reduction.dtype, inputs, reduction.dtype, {inputs.elements()});
}

}  // namespace hvd
