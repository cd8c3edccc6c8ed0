// Adasum through the whole stack against a plain loop in double: any number of ranks, every backend, the same bits.
#include <cmath>
#include <mutex>

#include "tests/conformance/element.h"
#include "tests/conformance/sizes.h"
#include "tests/support/adasum_reference.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"

namespace hvd::testing {

namespace {

constexpr DType kFloats[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
constexpr double kPrescale = 0.75, kPostscale = 3.0;

using Bytes = std::vector<std::byte>;
using Vectors = std::vector<std::vector<double>>;

// Every way to place this many ranks that has a backend, or a mixture, of its own.
std::vector<Layout> layouts_of(int ranks) {
  std::vector<Layout> layouts{{{ranks}}};
  if (ranks > 1) layouts.push_back({{ranks}, false});
  if (ranks > 2) layouts.push_back({{1, ranks - 1}});
  if (ranks > 3) layouts.push_back({{2, ranks - 3, 1}});
  return layouts;
}

struct Tensor {
  Tensor(DType type, std::int64_t length)
      : dtype(type), elements(length), bytes(static_cast<std::size_t>(length) * size_of(type) + 1) {}
  TensorArgument view() { return {.data = bytes.data(), .dtype = dtype, .shape = {elements}}; }
  std::vector<double> values() const {
    std::vector<double> all;
    for (std::int64_t i = 0; i < elements; ++i) all.push_back(get_element(dtype, bytes.data(), i));
    return all;
  }

  DType dtype;
  std::int64_t elements;
  Bytes bytes;
};

// Ranks have something in common, and something of their own.
Tensor tensor_of(int rank, DType dtype, std::int64_t elements) {
  Tensor tensor(dtype, elements);
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto at = static_cast<double>(i);
    put_element(dtype, tensor.bytes.data(), i, std::sin(at + 1) + std::cos((at + 3) * (rank + 2)));
  }
  return tensor;
}

// What ranks [0, given) have, zeros for the others, as their type holds it.
Vectors vectors_of(int given, int ranks, DType dtype, std::int64_t elements) {
  Vectors vectors;
  for (int rank = 0; rank < ranks; ++rank) {
    vectors.push_back(rank < given ? tensor_of(rank, dtype, elements).values()
                                   : std::vector<double>(static_cast<std::size_t>(elements)));
  }
  return vectors;
}

void require_close(const Tensor& result, Vectors inputs, double scale) {
  for (auto& vector : inputs) {
    for (double& value : vector) value *= scale;
  }
  const AdasumTolerance tolerance(result.dtype, inputs);
  const auto expected = adasum_reference(inputs);
  const auto values = result.values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    require(tolerance.allows(values[i], expected[i]), [&] {
      return "adasum of " + std::to_string(result.elements) + " " + dtype_name(result.dtype) + " at " +
             std::to_string(i) + ": got " + std::to_string(values[i]) + ", wanted " + std::to_string(expected[i]);
    });
  }
}

CallArguments adasum_of(std::vector<Tensor*> tensors, std::string name = "") {
  CallArguments call{.name = std::move(name), .op = ReduceOp::adasum};
  for (Tensor* tensor : tensors) call.inputs.push_back(tensor->view());
  call.outputs = call.inputs;
  return call;
}

// All types and sizes; returns the bits, which rank 0 has compared for all.
std::vector<Bytes> results_on(Runtime& runtime) {
  const Topology& t = runtime.topology();
  std::vector<Bytes> results;
  for (const DType dtype : kFloats) {
    std::vector<Tensor> alone, fused;
    std::vector<Tensor*> group;
    for (const std::int64_t size : kSizes) {
      alone.push_back(tensor_of(t.rank, dtype, size));
      perform(runtime, adasum_of({&alone.back()}));
      if (t.rank == 0) require_close(alone.back(), vectors_of(t.size, t.size, dtype, size), 1.0);
      fused.push_back(tensor_of(t.rank, dtype, size));
    }
    for (Tensor& tensor : fused) group.push_back(&tensor);
    perform(runtime, adasum_of(group));
    for (std::size_t i = 0; i < fused.size(); ++i) {
      require(fused[i].bytes == alone[i].bytes, std::string("fusion changed the bits of ") + dtype_name(dtype));
      results.push_back(fused[i].bytes);
    }

    const Tensor input = tensor_of(t.rank, dtype, 1000);
    Tensor given = input, scaled(dtype, 1000);
    CallArguments call = adasum_of({&given});
    call.outputs = {scaled.view()};
    call.prescale = kPrescale;
    call.postscale = kPostscale;
    perform(runtime, call);
    require(given.bytes == input.bytes, "the input was changed");
    if (t.rank == 0) require_close(scaled, vectors_of(t.size, t.size, dtype, 1000), kPrescale * kPostscale);
    results.push_back(scaled.bytes);
  }
  return results;
}

}  // namespace

TEST_CASE("adasum on 1 to 8 ranks equals a plain loop, with the same bits on every rank and backend") {
  const int ranks = GENERATE(range(1, kSanitized ? 5 : 9));
  std::mutex mutex;
  std::vector<Bytes> first;
  for (const Layout& layout : layouts_of(ranks)) {
    INFO(layout.name());
    REQUIRE_NOTHROW(run_ranks({layout, kSmallChunks}, [&](Runtime& runtime) {
      const auto results = results_on(runtime);
      const std::lock_guard lock(mutex);
      if (first.empty()) first = results;
      require(results == first, "other bits than on another rank or backend");
    }));
  }
}

TEST_CASE("adasum of tensors of several types in one group") {
  const Layout layout = GENERATE(Layout{{3}}, Layout{{2, 2}}, Layout{{2}, false});
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    Tensor a = tensor_of(t.rank, DType::float32, 50), b = tensor_of(t.rank, DType::float16, 70),
           c = tensor_of(t.rank, DType::float64, 0);
    perform(runtime, adasum_of({&a, &b, &c}, "group"));
    require_close(a, vectors_of(t.size, t.size, DType::float32, 50), 1.0);
    require_close(b, vectors_of(t.size, t.size, DType::float16, 70), 1.0);
  }));
}

TEST_CASE("adasum: a joined rank stands for zeros, also when scaled") {
  const Layout layout = GENERATE(Layout{{2}}, Layout{{5}}, Layout{{3}, false}, Layout{{2, 2}});
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, kSmallChunks}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    // Rank r has t.size - r batches: the last one joins first.
    for (int given = t.size; given > t.rank; --given) {
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        Tensor single = tensor_of(t.rank, dtype, 1000), other = tensor_of(t.rank, dtype, 9001);
        CallArguments call = adasum_of({&single}, "single");
        call.prescale = kPrescale;
        perform(runtime, call);
        require_close(single, vectors_of(given, t.size, dtype, 1000), kPrescale);
        single = tensor_of(t.rank, dtype, 1000);
        perform(runtime, adasum_of({&single, &other}, "pair"));
        require_close(single, vectors_of(given, t.size, dtype, 1000), 1.0);
        require_close(other, vectors_of(given, t.size, dtype, 9001), 1.0);
      }
    }
    perform(runtime, {.collective = Collective::join, .name = "join"});
  }));
}

}  // namespace hvd::testing
