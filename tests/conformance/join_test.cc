// Every collective while one rank has joined, whichever it is: the others get what they would get without it.
#include <algorithm>
#include <numeric>

#include "tests/conformance/element.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"

namespace hvd::testing {

namespace {

const std::vector<Layout> kJoinLayouts = {{{2}},    {{3}},    {{5}},    {{2}, false}, {{3}, false},
                                          {{1, 1}}, {{1, 3}}, {{2, 2}}, {{2, 1, 2}}};
#ifdef HVD_SANITIZED
constexpr DType kTypes[] = {DType::bfloat16};
constexpr ReduceOp kOps[] = {ReduceOp::average, ReduceOp::product};
#else
constexpr DType kTypes[] = {DType::int32, DType::bfloat16, DType::float32};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product};
#endif

double held_by(int rank, std::int64_t i, ReduceOp op = ReduceOp::sum) {
  const std::int64_t mixed = rank * 7 + i * 3 + i / 11;
  return static_cast<double>(op == ReduceOp::product ? mixed % 2 + 1 : mixed % 4 - 5);
}

struct FilledTensor {
  FilledTensor(DType type, Shape dims, int rank, ReduceOp op = ReduceOp::sum) : dtype(type), shape(std::move(dims)) {
    bytes.resize(static_cast<std::size_t>(elements_of(shape)) * size_of(dtype) + 1);
    for (std::int64_t i = 0; i < elements_of(shape); ++i) put_element(dtype, bytes.data(), i, held_by(rank, i, op));
  }
  TensorArgument view() { return {.data = bytes.data(), .dtype = dtype, .shape = shape}; }

  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
};

// One of the ranks that have not joined.
class Present {
 public:
  Present(Runtime& runtime, int joined, bool divides_by_all)
      : runtime_(runtime), rank_(runtime.topology().rank), joined_(joined), divides_by_all_(divides_by_all) {
    for (int rank = 0; rank < size(); ++rank) {
      if (rank != joined) others_.push_back(rank);
    }
  }

  int size() const { return runtime_.topology().size; }

  void allreduce(DType dtype, ReduceOp op, std::int64_t elements) {
    FilledTensor tensor(dtype, {elements}, rank_, op);
    CallArguments call{.op = op};
    call.inputs = call.outputs = {tensor.view()};
    perform(runtime_, call);
    for (std::int64_t i = 0; i < elements; ++i) expect(dtype, tensor.bytes.data(), i, reduced(dtype, op, i));
  }

  void reducescatter(DType dtype, ReduceOp op, std::int64_t rows) {
    FilledTensor tensor(dtype, {rows, 3}, rank_, op);
    CallArguments call{.collective = Collective::reducescatter, .op = op};
    call.inputs = {tensor.view()};
    const std::int64_t longer = rows % size();
    const std::int64_t first = rank_ * (rows / size()) + std::min<std::int64_t>(rank_, longer);
    const std::int64_t mine = rows / size() + (rank_ < longer ? 1 : 0);
    CallerReference handle = finished(call);
    expect_output(handle, dtype, {mine, 3}, [&](std::int64_t i) { return reduced(dtype, op, first * 3 + i); });
  }

  // Rank r has base + r rows.
  void allgather(DType dtype, std::int64_t base) {
    FilledTensor tensor(dtype, {base + rank_, 2}, rank_);
    CallArguments call{.collective = Collective::allgather};
    call.inputs = {tensor.view()};
    std::vector<double> expected;
    for (const int rank : others_) {
      for (std::int64_t i = 0; i < (base + rank) * 2; ++i) expected.push_back(held_by(rank, i));
    }
    CallerReference handle = finished(call);
    expect_output(handle, dtype, {static_cast<std::int64_t>(expected.size()) / 2, 2},
                  [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; });
  }

  void broadcast(DType dtype, int root, std::int64_t elements) {
    FilledTensor tensor(dtype, {elements}, rank_);
    CallArguments call{.collective = Collective::broadcast, .root = root};
    call.inputs = call.outputs = {tensor.view()};
    if (root == joined_) {
      const Status status = outcome(runtime_, call);
      require(status.code() == StatusCode::mismatch, "a joined root: " + status.message());
      require(status.message().find("its root, rank " + std::to_string(root)) != std::string::npos, status.message());
      return;
    }
    perform(runtime_, call);
    for (std::int64_t i = 0; i < elements; ++i) expect(dtype, tensor.bytes.data(), i, held_by(root, i));
  }

  // Rank s sends (s + d) % 3 * scale rows to rank d, and none to the joined one.
  void alltoall(DType dtype, std::int64_t scale) {
    const auto rows = [&](int s, int d) { return d == joined_ ? 0 : std::int64_t{(s + d) % 3} * scale; };
    CallArguments call{.collective = Collective::alltoall};
    for (int d = 0; d < size(); ++d) call.splits.push_back(rows(rank_, d));
    FilledTensor tensor(dtype, {std::accumulate(call.splits.begin(), call.splits.end(), std::int64_t{0})}, rank_);
    call.inputs = {tensor.view()};
    std::vector<double> expected;
    std::vector<std::int64_t> received(static_cast<std::size_t>(size()));
    for (const int s : others_) {
      std::int64_t offset = 0;
      for (int d = 0; d < rank_; ++d) offset += rows(s, d);
      received[static_cast<std::size_t>(s)] = rows(s, rank_);
      for (std::int64_t i = 0; i < rows(s, rank_); ++i) expected.push_back(held_by(s, offset + i));
    }
    CallerReference handle = finished(call);
    require(handle->completion.received_splits == received, "received splits");
    expect_output(handle, dtype, {static_cast<std::int64_t>(expected.size())},
                  [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; });
  }

  void alltoall_to_the_joined() {
    FilledTensor tensor(DType::float32, {size()}, rank_);
    CallArguments call{.collective = Collective::alltoall};
    call.inputs = {tensor.view()};
    const Status status = outcome(runtime_, call);
    require(status.code() == StatusCode::mismatch, "rows for a joined rank: " + status.message());
    require(status.message().find("1 rows to rank " + std::to_string(joined_)) != std::string::npos, status.message());
  }

 private:
  CallerReference finished(const CallArguments& call) {
    CallerReference handle = runtime_.submit(call);
    require(handle->wait(deadline_after(std::chrono::minutes(5))), "not done in five minutes");
    require(handle->completion.status().ok(), handle->completion.status().message());
    return handle;
  }

  double reduced(DType dtype, ReduceOp op, std::int64_t i) const {
    std::vector<double> values;
    for (const int rank : others_) values.push_back(held_by(rank, i, op));
    const bool of_all = op == ReduceOp::average && divides_by_all_;
    return reduce_elements(dtype, of_all ? ReduceOp::sum : op, values, 1.0, of_all ? 1.0 / size() : 1.0);
  }

  template <typename Expected>
  void expect_output(CallerReference& handle, DType dtype, const Shape& shape, const Expected& expected) const {
    const OwnedTensor& output = handle->memory.outputs.at(0);
    require(output.shape == shape, "shape " + to_string(output.shape) + " where " + to_string(shape) + " is right");
    const auto* data = static_cast<const std::byte*>(output.memory.get());
    for (std::int64_t i = 0; i < elements_of(shape); ++i) expect(dtype, data, i, expected(i));
  }

  void expect(DType dtype, const std::byte* data, std::int64_t i, double wanted) const {
    const double got = get_element(dtype, data, i);
    if (got == wanted) return;
    require(false, "rank " + std::to_string(joined_) + " has joined; element " + std::to_string(i) + " is " +
                       std::to_string(got) + " and should be " + std::to_string(wanted));
  }

  Runtime& runtime_;
  const int rank_, joined_;
  const bool divides_by_all_;
  std::vector<int> others_;
};

void join(Runtime& runtime, int not_last) {
  CallerReference handle = runtime.submit({.collective = Collective::join});
  require(handle->wait(deadline_after(std::chrono::minutes(5))), "join is not done in five minutes");
  require(handle->completion.status().ok(), handle->completion.status().message());
  require(handle->completion.last_joined != not_last && handle->completion.last_joined >= 0,
          "another rank joined last");
}

// Each rank in its turn joins before the others, who do `body`; under a sanitizer the first and the last.
template <typename Body>
void with_each_joined(Runtime& runtime, bool divides_by_all, const Body& body) {
  const Topology& t = runtime.topology();
  for (int joined = 0; joined < t.size; joined += kSanitized ? t.size - 1 : 1) {
    if (t.rank != joined) body(Present(runtime, joined, divides_by_all));
    join(runtime, joined);
  }
}

}  // namespace

TEST_CASE("every collective goes on without a rank that has joined") {
  const int number = GENERATE(range(0, static_cast<int>(kJoinLayouts.size())));
  const Layout layout = kJoinLayouts[static_cast<std::size_t>(number)];
  const bool divides_by_all = GENERATE(true, false);
  if (divides_by_all != (number % 2 == 0)) return;  // each layout with one of them
  INFO(layout.name() + (divides_by_all ? "" : ", averages of those that contribute"));
  const Environment environment = {{"HVD_CHUNK_BYTES", "4096"},
                                   {"HVD_JOIN_DIVISOR", divides_by_all ? "all" : "contributing"}};
  REQUIRE_NOTHROW(run_ranks({layout, environment}, [&](Runtime& runtime) {
    with_each_joined(runtime, divides_by_all, [](Present present) {
      for (const DType dtype : kTypes) {
        for (const std::int64_t size : {0, 1, 7, 3001}) {
          for (const ReduceOp op : kOps) {
            present.allreduce(dtype, op, size);
            present.reducescatter(dtype, op, size);
          }
          for (int root = 0; root < present.size(); ++root) present.broadcast(dtype, root, size);
          present.allgather(dtype, size);
          present.alltoall(dtype, size);
        }
      }
      present.alltoall_to_the_joined();
    });
    perform(runtime, {.collective = Collective::barrier});
  }));
}

TEST_CASE("much data moves without a rank that has joined") {
  const Layout layout = GENERATE(Layout{{3}}, Layout{{2, 2}}, Layout{{3}, false});
  if (kSanitized && layout.size() == 4) return;
  INFO(layout.name());
  REQUIRE_NOTHROW(run_ranks({layout, {}}, [](Runtime& runtime) {
    with_each_joined(runtime, true, [](Present present) {
      for (int call = 0; call < 12; ++call) {  // so many that each way of moving it has been tried
        present.allgather(DType::float32, 40'000);
        present.alltoall(DType::int32, 40'000);
        present.reducescatter(DType::float32, ReduceOp::sum, 20'000);
      }
      for (int root = 0; root < 12; ++root) present.broadcast(DType::float32, root % present.size(), 80'000);
    });
  }));
}

}  // namespace hvd::testing
