// The order of what streams do: nothing is read before it is written, whoever writes it.
#include <atomic>
#include <thread>

#include "tests/ops/gpu/gpu_ranks.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

const Deadline kTimeout = Deadline::max();

}  // namespace

TEST_CASE("an input that a stream has still to write is not read before") {
  const FakeGpu gpu(GENERATE(1u, 2u, 3u), 100);
  REQUIRE_NOTHROW(run_gpu_ranks(3, [&](Runtime& runtime) {
    FakeGpu::Stream stream(gpu, runtime.topology().rank);
    for (int step = 0; step < 8; ++step) {
      const GpuTensor tensor(gpu, runtime, std::vector<float>(100, -1000));
      const auto value = static_cast<float>(runtime.topology().rank + step);
      std::atomic<bool> may_write{false};
      stream.put([&] {
        while (!may_write) std::this_thread::yield();
        std::fill_n(tensor.data(), 100, value);
      });
      CallerReference handle = runtime.submit(allreduce_of(tensor, "gradient", stream.handle()));
      require(handle->wait_until_enqueued(kTimeout), "not in the stream");
      require(!handle->wait(deadline_after(3ms)), "over before there was an input");
      may_write = true;
      require(handle->wait(deadline_after(1min)), "not over in a minute");
      require(tensor.values() == std::vector<float>(100, 3.0f * static_cast<float>(step) + 3), "read too early");
      stream.drain();
    }
  }));
}

TEST_CASE("a stream that waits for an operation does not read its output before") {
  const FakeGpu gpu(GENERATE(1u, 2u, 3u), 300);
  REQUIRE_NOTHROW(run_gpu_ranks(3, [&](Runtime& runtime) {
    FakeGpu::Stream producer(gpu, runtime.topology().rank), consumer(gpu, runtime.topology().rank);
    for (int step = 0; step < 20; ++step) {
      const GpuTensor tensor(gpu, runtime, std::vector<float>(100, -1000));
      producer.put([&] { std::fill_n(tensor.data(), 100, 1.0f); });
      CallerReference handle = runtime.submit(allreduce_of(tensor, "gradient", producer.handle()));
      require(handle->wait_until_enqueued(kTimeout), "not in the stream");
      require(handle->completion.status().ok(), handle->completion.status().message());
      handle->completion.on_device->hold_up(consumer.handle());
      std::vector<float> seen;
      consumer.put([&] { seen = tensor.values(); });
      consumer.drain();
      require(seen == std::vector<float>(100, 3), "read too early");
    }
  }));
}

// A step of training: nobody waits for the GPU but the next step's streams.
TEST_CASE("steps follow one another in stream order alone") {
  const FakeGpu gpu(7, 100);
  REQUIRE_NOTHROW(run_gpu_ranks(2, [&](Runtime& runtime) {
    FakeGpu::Stream stream(gpu, runtime.topology().rank);
    std::vector<GpuTensor> tensors;
    for (int i = 0; i < 5; ++i) tensors.emplace_back(gpu, runtime, std::vector<float>(10, 1));
    for (int step = 0; step < 30; ++step) {
      std::vector<CallerReference> handles;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        stream.put([&, i] {
          for (std::size_t k = 0; k < 10; ++k) tensors[i].data()[k] *= 0.5f;
        });
        handles.push_back(runtime.submit(allreduce_of(tensors[i], "gradient." + std::to_string(i), stream.handle())));
      }
      for (CallerReference& handle : handles) {
        require(handle->wait_until_enqueued(kTimeout), "not in the stream");
        require(handle->completion.status().ok(), handle->completion.status().message());
        handle->completion.on_device->hold_up(stream.handle());
      }
    }
    stream.drain();
    for (const GpuTensor& tensor : tensors) require(tensor.values() == std::vector<float>(10, 1), "a step was lost");
    require(runtime.metrics().locked_buckets.value() > 0, "the schedule was never locked");
  }));
}

TEST_CASE("a name may be used for a GPU tensor and for one on the CPU in turns") {
  const FakeGpu gpu;
  REQUIRE_NOTHROW(run_gpu_ranks(2, [&](Runtime& runtime) {
    for (int step = 0; step < 8; ++step) {
      if (step % 2 == 0) {
        const GpuTensor tensor(gpu, runtime, {1, 2});
        perform(runtime, allreduce_of(tensor, "x"));
        require(tensor.values() == std::vector<float>{2, 4}, "on the GPU");
      } else {
        std::vector<float> values{1, 2};
        CallArguments call{.name = "x"};
        call.inputs = call.outputs = {{.data = values.data(), .dtype = DType::float32, .shape = {2}}};
        perform(runtime, call);
        require(values == std::vector<float>{2, 4}, "on the CPU");
      }
    }
  }));
}

TEST_CASE("a synchronous operation waits for the GPU") {
  const FakeGpu gpu(5, 300);
  REQUIRE_NOTHROW(run_gpu_ranks(2, [&](Runtime& runtime) {
    for (int step = 0; step < 20; ++step) {
      const GpuTensor tensor(gpu, runtime, {1, 2});
      const Status status = outcome_of_run(runtime, allreduce_of(tensor, ""));
      require(status.ok(), status.message());
      require(tensor.values() == std::vector<float>{2, 4}, "not over");
    }
  }));
}

TEST_CASE("a rank that has joined takes part with neutral elements") {
  const FakeGpu gpu;
  const ReduceOp op = GENERATE(ReduceOp::sum, ReduceOp::min, ReduceOp::product);
  REQUIRE_NOTHROW(run_gpu_ranks(3, [&](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    if (rank != 1) {
      for (int step = 0; step < 3; ++step) {
        const GpuTensor tensor(gpu, runtime, {2, 3, 5});
        CallArguments call = allreduce_of(tensor, "last " + std::to_string(step));
        call.op = op;
        perform(runtime, call);
        const std::vector<float> expected = op == ReduceOp::sum   ? std::vector<float>{4, 6, 10}
                                            : op == ReduceOp::min ? std::vector<float>{2, 3, 5}
                                                                  : std::vector<float>{4, 9, 25};
        require(tensor.values() == expected, "the joined rank has changed the result");
      }
    }
    perform(runtime, {.collective = Collective::join});
  }));
}

TEST_CASE("a rank that has joined a process set takes part with its own GPU, not with another rank's") {
  const FakeGpu gpu;
  REQUIRE_NOTHROW(run_gpu_ranks(3, [&](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const std::int32_t set = runtime.sets().add({1, 2});
    if (rank == 0) return;
    const GpuTensor tensor(gpu, runtime, {1});
    CallArguments call = allreduce_of(tensor, "x");
    call.process_set = set;
    if (rank == 1) perform(runtime, call);  // the set's first GPU tensor, which rank 2 has not
    perform(runtime, {.collective = Collective::join, .process_set = set});
    perform(runtime, call);
    require(tensor.values() == std::vector<float>{2}, "wrong sum");
  }));
}

TEST_CASE("a rank that has joined has nothing to give, and gets nothing") {
  const FakeGpu gpu;
  REQUIRE_NOTHROW(run_gpu_ranks(3, [&](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    if (rank != 1) {
      const auto own = static_cast<float>(rank);
      const GpuTensor tensor(gpu, runtime, {own, own, own, own});
      const auto result_of = [&](Collective collective) {
        CallArguments call = allreduce_of(tensor, "");
        call.collective = collective;
        call.outputs.clear();
        CallerReference handle = runtime.submit(call);
        require(handle->wait(deadline_after(1min)), "not over in a minute");
        require(handle->completion.outcome().ok(), handle->completion.outcome().message());
        const OwnedTensor& output = handle->memory.outputs.at(0);
        const auto* const values = static_cast<const float*>(output.data());
        return std::vector<float>(values, values + output.shape[0]);
      };
      require(result_of(Collective::allgather) == std::vector<float>{0, 0, 0, 0, 2, 2, 2, 2}, "allgather");
      const std::vector<float> slice = rank == 0 ? std::vector<float>{2, 2} : std::vector<float>{2};
      require(result_of(Collective::reducescatter) == slice, "reducescatter");
      CallArguments call = allreduce_of(tensor, "");
      call.collective = Collective::broadcast;
      call.root = 2;
      perform(runtime, call);
      require(tensor.values() == std::vector<float>{2, 2, 2, 2}, "broadcast");
    }
    perform(runtime, {.collective = Collective::join});
  }));
}

TEST_CASE("process sets have communicators of their own") {
  const FakeGpu gpu;
  REQUIRE_NOTHROW(run_gpu_ranks(4, [&](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const std::int32_t even = runtime.sets().add({0, 2}), odd = runtime.sets().add({1, 3});
    const GpuTensor tensor(gpu, runtime, {static_cast<float>(rank)});
    CallArguments call = allreduce_of(tensor, "x");
    call.process_set = rank % 2 == 0 ? even : odd;
    perform(runtime, call);
    require(tensor.values() == std::vector<float>{rank % 2 == 0 ? 2.0f : 4.0f}, "of the wrong ranks");
    const int communicators = gpu.nccl().live_communicators();
    require(communicators >= 2, "communicators: " + std::to_string(communicators));
    perform(runtime, {.collective = Collective::barrier});
    runtime.sets().remove(even);
    runtime.sets().remove(odd);
  }));
  CHECK(gpu.nccl().aborted_communicators() == 0);
}

}  // namespace hvd::testing
