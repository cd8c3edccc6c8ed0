// Every collective x dtype x op x size, against a plain loop, through the whole stack: submit, negotiate, fuse, move.
// Rank counts and transports come from the layouts.
#include <cstring>
#include <map>
#include <optional>

#include "tests/conformance/element.h"
#include "tests/conformance/place.h"
#include "tests/conformance/sizes.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"

namespace hvd::testing {

namespace {

const std::vector<Layout> kCpuLayouts = {
    {{1}},        {{2}},        {{3}},        {{4}},    {{5}},    {{8}},    {{2}, false}, {{3}, false},
    {{4}, false}, {{5}, false}, {{8}, false}, {{1, 1}}, {{2, 2}}, {{1, 3}}, {{2, 1, 2}},  {{4, 4}},
};

const std::vector<Layout> kGpuLayouts = {
    {{1}, true, true}, {{2}, true, true}, {{4}, true, true}, {{4}, false, true}, {{2, 2}, true, true}};

std::vector<Layout> all_layouts() {
  std::vector<Layout> all = kCpuLayouts;
  all.insert(all.end(), kGpuLayouts.begin(), kGpuLayouts.end());
  return all;
}

struct Buffer {
  Buffer(DType type, Shape dims) : dtype(type), shape(std::move(dims)), bytes(view_bytes() + 1) {
    const Place& place = place_of_this_rank();
    device = place.device;
    if (place.gpu != nullptr) on_gpu.emplace(*place.gpu, device, bytes.size());
  }
  TensorArgument view() { return {.data = data(), .dtype = dtype, .shape = shape, .device = device}; }
  std::int64_t elements() const { return elements_of(shape); }
  void put(std::int64_t i, double value) { put_element(dtype, data(), i, value); }
  double get(std::int64_t i) const { return get_element(dtype, data(), i); }

  DType dtype;
  Shape shape;
  int device = kCpuDevice;
  std::vector<std::byte> bytes;          // of a tensor in the CPU's memory
  std::optional<FakeGpu::Block> on_gpu;  // of one on a GPU

 private:
  std::byte* data() { return on_gpu ? on_gpu->data() : bytes.data(); }
  const std::byte* data() const { return on_gpu ? on_gpu->data() : bytes.data(); }
  std::size_t view_bytes() const { return static_cast<std::size_t>(elements_of(shape)) * size_of(dtype); }
};

// What rank r holds at element i: 1..4, or 1..2 for products so that eight factors stay exact.
double value_of(int rank, std::int64_t i, DType dtype, ReduceOp op) {
  const std::int64_t mixed = rank * 7 + i * 3 + i / 11;
  if (dtype == DType::boolean) return static_cast<double>(mixed % 2);
  return static_cast<double>(op == ReduceOp::product ? mixed % 2 + 1 : mixed % 4 + 1);
}

Buffer filled(int rank, DType dtype, Shape shape, ReduceOp op = ReduceOp::sum) {
  Buffer buffer(dtype, std::move(shape));
  for (std::int64_t i = 0; i < buffer.elements(); ++i) buffer.put(i, value_of(rank, i, dtype, op));
  return buffer;
}

// All ranks' values of one element after the other, in the same memory.
class ValuesOfAll {
 public:
  ValuesOfAll(int size, DType dtype, ReduceOp op) : dtype_(dtype), op_(op), values_(static_cast<std::size_t>(size)) {}
  const std::vector<double>& at(std::int64_t i) {
    for (std::size_t rank = 0; rank < values_.size(); ++rank) {
      values_[rank] = value_of(static_cast<int>(rank), i, dtype_, op_);
    }
    return values_;
  }

 private:
  const DType dtype_;
  const ReduceOp op_;
  std::vector<double> values_;
};

// What was done to which tensor, for a check that fails.
struct Label {
  const char* collective;
  DType dtype;
  ReduceOp op;
  std::int64_t elements;
};

void expect(double got, double wanted, const Label& label, std::int64_t i) {
  require(got == wanted, [&] {
    return std::string(label.collective) + " of " + std::to_string(label.elements) + " " + dtype_name(label.dtype) +
           " with " + reduce_op_name(label.op) + " at " + std::to_string(i) + ": got " + std::to_string(got) +
           ", wanted " + std::to_string(wanted);
  });
}

// All of filled()'s elements, summed over the ranks.
void expect_sums(const Buffer& buffer, int size, const char* collective) {
  ValuesOfAll given(size, buffer.dtype, ReduceOp::sum);
  for (std::int64_t i = 0; i < buffer.elements(); ++i) {
    expect(buffer.get(i), reduce_elements(buffer.dtype, ReduceOp::sum, given.at(i), 1.0, 1.0),
           {collective, buffer.dtype, ReduceOp::sum, buffer.elements()}, i);
  }
}

std::vector<ReduceOp> ops_for(DType dtype) {
  if (dtype == DType::boolean) return {ReduceOp::min, ReduceOp::max};
  if (only_moves(dtype)) return {};
  return {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product};
}

Operation& finish(CallerReference& handle) {
  require(handle->wait(deadline_after(std::chrono::minutes(5))), "not done in five minutes");
  if (const Status end = handle->completion.outcome(); !end.ok()) throw std::runtime_error(end.message());
  return *handle;
}

void check_allreduce(Runtime& runtime, DType dtype, ReduceOp op, std::int64_t elements, bool in_place, double prescale,
                     double postscale) {
  const Topology& t = runtime.topology();
  Buffer input = filled(t.rank, dtype, {elements}, op);
  Buffer output(dtype, {elements});
  CallArguments call{.collective = Collective::allreduce, .op = op, .prescale = prescale, .postscale = postscale};
  call.inputs = {input.view()};
  call.outputs = {in_place ? input.view() : output.view()};
  perform(runtime, call);
  const Buffer& result = in_place ? input : output;
  ValuesOfAll given(t.size, dtype, op);
  for (std::int64_t i = 0; i < elements; ++i) {
    expect(result.get(i), reduce_elements(dtype, op, given.at(i), prescale, postscale),
           {"allreduce", dtype, op, elements}, i);
  }
}

void check_reducescatter(Runtime& runtime, DType dtype, ReduceOp op, std::int64_t rows) {
  const Topology& t = runtime.topology();
  Buffer input = filled(t.rank, dtype, {rows, 3}, op);
  CallArguments call{.collective = Collective::reducescatter, .op = op};
  call.inputs = {input.view()};
  CallerReference handle = runtime.submit(call);
  const OwnedTensor& output = finish(handle).memory.outputs.at(0);
  const std::int64_t mine = rows / t.size + (t.rank < rows % t.size ? 1 : 0);
  const std::int64_t first = t.rank * (rows / t.size) + std::min<std::int64_t>(t.rank, rows % t.size);
  require(output.shape == Shape{mine, 3}, "reducescatter gave shape " + to_string(output.shape));
  ValuesOfAll given(t.size, dtype, op);
  for (std::int64_t i = 0; i < mine * 3; ++i) {
    expect(get_element(dtype, static_cast<const std::byte*>(output.data()), i),
           reduce_elements(dtype, op, given.at(first * 3 + i), 1.0, 1.0), {"reducescatter", dtype, op, rows * 3}, i);
  }
}

// Rank r gives base + r rows, so first dimensions differ.
void check_allgather(Runtime& runtime, DType dtype, std::int64_t base) {
  const Topology& t = runtime.topology();
  const auto rows_of = [&](int rank) { return base == 0 ? rank % 2 : base + rank; };
  Buffer input = filled(t.rank, dtype, {rows_of(t.rank), 2});
  CallArguments call{.collective = Collective::allgather};
  call.inputs = {input.view()};
  CallerReference handle = runtime.submit(call);
  const OwnedTensor& output = finish(handle).memory.outputs.at(0);
  std::int64_t at = 0;
  for (int rank = 0; rank < t.size; ++rank) {
    for (std::int64_t i = 0; i < rows_of(rank) * 2; ++i, ++at) {
      expect(get_element(dtype, static_cast<const std::byte*>(output.data()), at),
             value_of(rank, i, dtype, ReduceOp::sum), {"allgather", dtype, ReduceOp::sum, base}, at);
    }
  }
  require(output.shape == Shape{at / 2, 2}, "allgather gave shape " + to_string(output.shape));
  Buffer given(dtype, output.shape);
  call.outputs = {given.view()};
  perform(runtime, call);
  require(std::memcmp(given.view().data, output.data(), bytes_of(at, dtype)) == 0, "allgather gave other rows");
}

void check_broadcast(Runtime& runtime, DType dtype, std::int64_t elements) {
  const Topology& t = runtime.topology();
  const int root = t.size - 1;
  Buffer buffer = filled(t.rank, dtype, {elements});
  CallArguments call{.collective = Collective::broadcast, .root = root};
  call.inputs = call.outputs = {buffer.view()};
  perform(runtime, call);
  for (std::int64_t i = 0; i < elements; ++i) {
    expect(buffer.get(i), value_of(root, i, dtype, ReduceOp::sum), {"broadcast", dtype, ReduceOp::sum, elements}, i);
  }
}

// Rank s sends (s + d) % 3 * scale rows to rank d.
void check_alltoall(Runtime& runtime, DType dtype, std::int64_t scale) {
  const Topology& t = runtime.topology();
  const auto rows = [&](int s, int d) { return std::int64_t{(s + d) % 3} * scale; };
  std::int64_t total = 0;
  CallArguments call{.collective = Collective::alltoall};
  for (int d = 0; d < t.size; ++d) {
    call.splits.push_back(rows(t.rank, d));
    total += rows(t.rank, d);
  }
  Buffer input = filled(t.rank, dtype, {total});
  call.inputs = {input.view()};
  CallerReference handle = runtime.submit(call);
  const Operation& operation = finish(handle);
  std::int64_t at = 0;
  for (int s = 0; s < t.size; ++s) {
    require(operation.completion.received_splits.at(static_cast<std::size_t>(s)) == rows(s, t.rank),
            "received splits are wrong");
    std::int64_t offset = 0;
    for (int d = 0; d < t.rank; ++d) offset += rows(s, d);
    for (std::int64_t i = 0; i < rows(s, t.rank); ++i, ++at) {
      expect(get_element(dtype, static_cast<const std::byte*>(operation.memory.outputs.at(0).data()), at),
             value_of(s, offset + i, dtype, ReduceOp::sum), {"alltoall", dtype, ReduceOp::sum, total}, at);
    }
  }
}

DType dtype_at(int i) { return static_cast<DType>(i); }

}  // namespace

TEST_CASE("every collective, dtype, op and size equals a plain loop") {
  const int number = GENERATE(range(0, static_cast<int>(all_layouts().size())));
  const Layout layout = all_layouts()[static_cast<std::size_t>(number)];
  INFO(layout.name());
  // Each type is tried in some layouts at least.
  const int step = kSanitized ? 10 : 2;
  REQUIRE_NOTHROW(run_ranks_in_place({layout, kSmallChunks}, [=](Runtime& runtime) {
    for (int d = number % step; d < kDTypeCount; d += step) {
      const DType dtype = dtype_at(d);
      for (const std::int64_t size : kSizes) {
        for (const ReduceOp op : ops_for(dtype)) {
          if (kSanitized && op != ops_for(dtype).front()) break;
          check_allreduce(runtime, dtype, op, size, size % 2 == 0, 1.0, 1.0);
          check_reducescatter(runtime, dtype, op, size / 3);
        }
        check_broadcast(runtime, dtype, size);
        check_allgather(runtime, dtype, size / 2);
        check_alltoall(runtime, dtype, size / 2);
      }
      if (dtype != DType::boolean && !only_moves(dtype)) {
        check_allreduce(runtime, dtype, ReduceOp::sum, 1000, false, 2.0, 0.5);
      }
    }
    perform(runtime, {.collective = Collective::barrier});
  }));
}

TEST_CASE("a hundred tensors at once are fused and come out as if each were alone") {
  const Layout layout = GENERATE(from_range(all_layouts()));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks_in_place({layout, kSmallChunks}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    for (int step = 0; step < (kSanitized ? 3 : 5); ++step) {  // the first step negotiates, the others hit the cache
      std::vector<Buffer> buffers;
      std::vector<CallerReference> handles;
      buffers.reserve(100);
      for (int i = 0; i < 100; ++i)
        buffers.push_back(filled(t.rank, i % 3 == 0 ? DType::bfloat16 : DType::float32, {i * 17 % 300}));
      for (int i = 0; i < 100; ++i) {
        // Each rank submits in an order of its own.
        const int index = (i * 7 + t.rank * 13 + step) % 100;
        CallArguments call{.name = "gradient." + std::to_string(index)};
        auto& buffer = buffers[static_cast<std::size_t>(index)];
        call.inputs = call.outputs = {buffer.view()};
        handles.push_back(runtime.submit(call));
      }
      for (CallerReference& handle : handles) finish(handle);
      for (const Buffer& buffer : buffers) expect_sums(buffer, t.size, "fused allreduce");
    }
  }));
}

TEST_CASE("a group is reduced as one, whatever its dtypes") {
  const Layout layout = GENERATE(Layout{{3}}, Layout{{2, 2}}, Layout{{2}, false}, Layout{{3}, true, true});
  REQUIRE_NOTHROW(run_ranks_in_place({layout, {}}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    Buffer a = filled(t.rank, DType::float32, {5}), b = filled(t.rank, DType::int64, {2, 2}),
           c = filled(t.rank, DType::float32, {0});
    CallArguments call{.name = "group"};
    call.inputs = call.outputs = {a.view(), b.view(), c.view()};
    perform(runtime, call);
    expect_sums(a, t.size, "grouped allreduce");
    expect_sums(b, t.size, "grouped allreduce");
  }));
}

// Sums of values that do not add exactly: the bits must not depend on what a tensor is fused with.
TEST_CASE("sums have the same bits on every rank, alone or fused") {
  const Layout layout = GENERATE(from_range(kCpuLayouts));
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, kSmallChunks}, [](Runtime& runtime) {
    const Topology& t = runtime.topology();
    const auto fill = [&](Buffer& buffer, int salt) {
      for (std::int64_t i = 0; i < buffer.elements(); ++i) {
        buffer.put(i, std::sin(static_cast<double>(i * 31 + t.rank * 977 + salt)) *
                          std::exp2(static_cast<double>((i + t.rank) % 9)));
      }
    };
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      Buffer alone(dtype, {3001});
      fill(alone, 1);
      CallArguments call{.name = "alone"};
      call.inputs = call.outputs = {alone.view()};
      perform(runtime, call);

      Buffer before(dtype, {777}), fused(dtype, {3001}), after(dtype, {555});
      fill(before, 2);
      fill(fused, 1);
      fill(after, 3);
      CallArguments group{.name = "fused"};
      group.inputs = group.outputs = {before.view(), fused.view(), after.view()};
      perform(runtime, group);
      require(alone.bytes == fused.bytes, std::string("fusion changed the bits of ") + dtype_name(dtype));

      Buffer mine(DType::uint8, {static_cast<std::int64_t>(alone.bytes.size())});
      mine.bytes = alone.bytes;
      mine.bytes.resize(alone.bytes.size() + 1);
      CallArguments gather{.collective = Collective::allgather};
      gather.inputs = {mine.view()};
      CallerReference handle = runtime.submit(gather);
      const auto* all = static_cast<const std::byte*>(finish(handle).memory.outputs.at(0).memory.get());
      for (int rank = 0; rank < t.size; ++rank) {
        require(std::memcmp(all + static_cast<std::size_t>(rank) * alone.bytes.size(), alone.bytes.data(),
                            alone.bytes.size()) == 0,
                "rank " + std::to_string(rank) + " has other bits");
      }
    }
  }));
}

}  // namespace hvd::testing
