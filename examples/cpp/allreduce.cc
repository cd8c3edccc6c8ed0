// The sum of every rank's number, in every type that hvd can add. Start it with: hvdrun -np 16 build/example/allreduce
#include <cmath>
#include <cstdint>
#include <hvd.hpp>
#include <iostream>
#include <vector>

// Every rank brings a thousand copies of its number; afterwards every rank holds 0 + 1 + ... + (size - 1).
template <typename T>
bool sum_is_right(const char* type_name) {
  const int expected = hvd::size() * (hvd::size() - 1) / 2;
  std::vector<T> values(1000, static_cast<T>(hvd::rank()));

  hvd::allreduce(values);  // in place, over all ranks

  bool right = true;
  // With 17 ranks and more an int8 wraps round, and so does the number that we expect.
  for (const T value : values) right = right && value == static_cast<T>(expected);
  if (hvd::rank() == 0) std::cout << type_name << ": " << +values[0] << (right ? "" : "  WRONG") << '\n';
  return right;
}

int main() {
  try {
    hvd::Session session;  // joins the job that hvdrun has started, and leaves it when main returns
    bool right = sum_is_right<std::uint8_t>("uint8");
    right &= sum_is_right<std::int8_t>("int8");
    right &= sum_is_right<std::int16_t>("int16");
    right &= sum_is_right<std::int32_t>("int32");
    right &= sum_is_right<std::int64_t>("int64");
    right &= sum_is_right<hvd::float16>("float16");
    right &= sum_is_right<hvd::bfloat16>("bfloat16");
    right &= sum_is_right<float>("float32");
    right &= sum_is_right<double>("float64");

    // Truth values have no sum: their maximum tells whether it is true anywhere, their minimum whether everywhere.
    std::vector<hvd::boolean> first(1, hvd::rank() == 0);
    hvd::allreduce(first, hvd::max);
    right &= first[0];

    // Meanwhile one can compute: an _async call returns a future.
    std::vector<double> loss(1, 0.5 * hvd::rank());
    auto average = hvd::allreduce_async(loss, hvd::average);
    average.wait();
    right &= std::abs(loss[0] - 0.25 * (hvd::size() - 1)) < 1e-9;
    return right ? 0 : 1;
  } catch (const hvd::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
