// The handler for arrays on a GPU, called as XLA calls it: a call begins after what is in XLA's stream, and what XLA
// puts into the stream afterwards comes after it. A job of one; jobs of several: tests/ops/gpu.
#include <dlfcn.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bindings/jax/ffi.h"
#include "include/hvd.h"
#include "tests/bindings/gpu_job.h"
#include "tests/support/built.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu.h"

namespace hvd::ffi {
struct Error {
  std::string text;
};
struct ExecutionContext {
  void* stream;
  std::int32_t ordinal;
};
}  // namespace hvd::ffi

namespace hvd::testing {

namespace {

using Dims = std::vector<std::int64_t>;
using Floats = std::vector<float>;
using Handler = ffi::Error* (*)(ffi::CallFrame*);

constexpr int kDevice = 2;

Handler handler() {
  void* const library = dlopen(built::jax, RTLD_NOW | RTLD_LOCAL);
  INFO(dlerror());
  REQUIRE(library != nullptr);
  return reinterpret_cast<Handler>(dlsym(library, "hvd_jax_collective_on_gpu"));
}

ffi::Error* create_error(ffi::ErrorCreateArguments* arguments) { return new ffi::Error{arguments->message}; }

ffi::Error* get_stream(ffi::StreamArguments* arguments) {
  arguments->stream = arguments->context->stream;
  return nullptr;
}

ffi::Error* get_device_ordinal(ffi::DeviceOrdinalArguments* arguments) {
  arguments->ordinal = arguments->context->ordinal;
  return nullptr;
}

// An array of floats in the GPU's memory.
struct Array {
  Array(const FakeGpu& gpu, Dims dims)
      : shape(std::move(dims)), block(std::make_unique<FakeGpu::Block>(gpu, kDevice, sizeof(float) * elements())) {}

  std::size_t elements() const {
    std::size_t count = 1;
    for (const std::int64_t dimension : shape) count *= static_cast<std::size_t>(dimension);
    return count;
  }
  float* data() const { return reinterpret_cast<float*>(block->data()); }
  void fill(FakeGpu::Stream& stream, float value) const {
    stream.put([this, value] { std::fill_n(data(), elements(), value); });
  }
  // As the stream sees it after what has been put into it.
  Floats in(FakeGpu::Stream& stream) const {
    Floats seen;
    stream.put([&] { seen.assign(data(), data() + elements()); });
    stream.drain();
    return seen;
  }

  Dims shape;
  std::unique_ptr<FakeGpu::Block> block;
};

// The call frame of one execution.
class Call {
 public:
  explicit Call(hvd_collective collective, std::map<std::string, std::int64_t> integers = {}) {
    integers.try_emplace("op", HVD_SUM);
    integers["collective"] = collective;
    for (const auto& [name, value] : integers) {
      add(name, ffi::AttributeType::scalar, &scalars_.emplace_back(ffi::DataType::s64, &numbers_.emplace_back(value)));
    }
    add("function", ffi::AttributeType::string, &words_.emplace_back("jax", 3));
  }
  Call& rows(const std::string& name, Dims& rows) {
    add(name, ffi::AttributeType::array, &arrays_.emplace_back(ffi::DataType::s64, rows.size(), rows.data()));
    return *this;
  }

  // The text of its error, if it has one.
  std::string run(FakeGpu::Stream& stream, const std::vector<const Array*>& inputs,
                  const std::vector<const Array*>& outputs) {
    ffi::ExecutionContext context{stream.handle(), kDevice};
    ffi::Api api{};
    api.struct_size = sizeof api;
    api.create_error = create_error;
    api.get_stream = get_stream;
    api.get_device_ordinal = get_device_ordinal;
    Buffers arguments(inputs), results(outputs);
    std::vector<ffi::ByteSpan*> names;
    for (ffi::ByteSpan& name : names_) names.push_back(&name);
    ffi::CallFrame frame{.struct_size = sizeof frame,
                         .extension = nullptr,
                         .api = &api,
                         .context = &context,
                         .stage = ffi::Stage::execute,
                         .arguments = arguments.frame(),
                         .results = results.frame(),
                         .attributes = {sizeof(ffi::Attributes), nullptr, static_cast<std::int64_t>(names.size()),
                                        types_.data(), names.data(), values_.data()}};
    static const Handler handle = handler();
    const std::unique_ptr<ffi::Error> error(handle(&frame));
    return error == nullptr ? "" : error->text;
  }

 private:
  class Buffers {
   public:
    explicit Buffers(const std::vector<const Array*>& arrays) : types_(arrays.size(), ffi::ArgumentType::buffer) {
      for (const Array* array : arrays) {
        buffers_.push_back({sizeof(ffi::Buffer), nullptr, ffi::DataType::f32, array->data(),
                            static_cast<std::int64_t>(array->shape.size()),
                            const_cast<std::int64_t*>(array->shape.data())});
      }
      for (ffi::Buffer& buffer : buffers_) pointers_.push_back(&buffer);
    }
    ffi::Buffers frame() {
      return {sizeof(ffi::Buffers), nullptr, static_cast<std::int64_t>(pointers_.size()), types_.data(),
              pointers_.data()};
    }

   private:
    std::vector<ffi::ArgumentType> types_;
    std::vector<ffi::Buffer> buffers_;
    std::vector<ffi::Buffer*> pointers_;
  };

  void add(const std::string& name, ffi::AttributeType type, void* value) {
    const std::string& own = own_names_.emplace_back(name);
    names_.push_back({own.data(), own.size()});
    types_.push_back(type);
    values_.push_back(value);
  }

  std::deque<std::int64_t> numbers_;
  std::deque<ffi::Scalar> scalars_;
  std::deque<ffi::ByteSpan> words_;
  std::deque<ffi::Array> arrays_;
  std::deque<std::string> own_names_;
  std::deque<ffi::ByteSpan> names_;
  std::vector<ffi::AttributeType> types_;
  std::vector<void*> values_;
};

}  // namespace

TEST_CASE("jax on a GPU: a call comes after what is in XLA's stream and before what follows") {
  const FakeGpu gpu(11, 300);
  const GpuJob job;
  FakeGpu::Stream stream(gpu, kDevice);
  const Array first(gpu, {3}), second(gpu, {2, 2}), first_sum(gpu, {3}), second_sum(gpu, {2, 2});
  for (int step = 0; step < 20; ++step) {
    const auto value = static_cast<float>(step);
    first.fill(stream, value);
    second.fill(stream, 2 * value);
    CHECK(Call(HVD_ALLREDUCE).run(stream, {&first, &second}, {&first_sum, &second_sum}).empty());
    first.fill(stream, -1);  // XLA has another use for the memory
    CHECK(first_sum.in(stream) == Floats(3, value));
    CHECK(second_sum.in(stream) == Floats(4, 2 * value));
  }
}

TEST_CASE("jax on a GPU: the results of all collectives come into XLA's memory") {
  const FakeGpu gpu(13, 200);
  const GpuJob job;
  FakeGpu::Stream stream(gpu, kDevice);
  const Array input(gpu, {4, 2}), output(gpu, {4, 2});
  Dims rows{4};
  float value = 1;
  const auto check = [&](Call call) {
    input.fill(stream, ++value);
    CHECK(call.run(stream, {&input}, {&output}).empty());
    CHECK(output.in(stream) == Floats(8, value));
  };
  check(Call(HVD_BROADCAST));
  check(Call(HVD_ALLGATHER));
  check(Call(HVD_REDUCESCATTER));
  Call exchange(HVD_ALLTOALL);
  exchange.rows("splits", rows).rows("received_splits", rows);
  input.fill(stream, 9);
  CHECK(exchange.run(stream, {&input}, {&output}).empty());
  CHECK(output.in(stream) == Floats(8, 9));
}

TEST_CASE("jax on a GPU: other rows than the program was compiled for are an error, and nothing is written") {
  const FakeGpu gpu(17, 100);
  const GpuJob job;
  FakeGpu::Stream stream(gpu, kDevice);
  const Array input(gpu, {4}), output(gpu, {3});
  input.fill(stream, 1);
  output.fill(stream, 7);
  for (int turn = 0; turn < 3; ++turn) {
    const std::string text = Call(HVD_ALLGATHER).run(stream, {&input}, {&output});
    CHECK_THAT(text, Catch::Matchers::StartsWith("HorovodInternalError: allgather 'jax'") &&
                         Catch::Matchers::Contains("output 0 has 3 rows, but the result 4") &&
                         Catch::Matchers::Contains("pad them"));
    CHECK(output.in(stream) == Floats(3, 7));
  }
  Dims sent{4}, expected{3};
  Call exchange(HVD_ALLTOALL);
  exchange.rows("splits", sent).rows("received_splits", expected);
  CHECK_THAT(exchange.run(stream, {&input}, {&output}),
             Catch::Matchers::Contains("3 rows, but the result 4") && Catch::Matchers::Contains("received_splits"));
  CHECK(output.in(stream) == Floats(3, 7));
  CHECK(Call(HVD_BROADCAST).run(stream, {&input}, {&input}).empty());
}

}  // namespace hvd::testing
