// What must not compile; CMakeLists.txt gives each case by number, with the words that the compiler must say.
#include <hvd.hpp>
#include <vector>

void rejected() {
#if CASE == 0
  std::vector<float> values(2);
  hvd::allreduce(values);  // the one that must compile, so that the others fail for their own reason
#elif CASE == 1
  std::vector<unsigned> values(2);
  hvd::allreduce(values);
#elif CASE == 2
  std::vector<bool> values(2);
  hvd::allreduce(values);
#elif CASE == 3
  const std::vector<float> values(2);
  hvd::allreduce(values);
#elif CASE == 4
  auto future = hvd::allgather_async(std::vector<float>(2));
#elif CASE == 5
  std::vector<float> input(2);
  std::vector<double> output(2);
  hvd::allreduce(input, output);
#elif CASE == 6
  std::vector<float> weights(2), biases(2);
  auto future = hvd::grouped_allreduce_async(std::vector{weights, biases});
#elif CASE == 7
  std::vector<float> weights(2), biases(2);
  hvd::grouped_allreduce(std::vector{weights, biases});
#endif
}
