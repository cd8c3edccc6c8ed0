// What goes wrong with GPU tensors: everybody gets the error, by name, and nobody hangs.
#include <atomic>
#include <optional>
#include <thread>

#include "tests/ops/gpu/gpu_ranks.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

const std::string kOfRank1 = "rank 1 on host-0 (pid 1001)";

struct Fault {
  const char* function;
  int after;  // so many calls that succeed
  int result;
};

// Of calls of rank 1's, which has device 1.
const std::vector<Fault> kNcclFaults = {
    {"ncclCommInitRankConfig", 0, 2},
    {"ncclCommGetAsyncError", 0, 2},
    {"ncclCommGetAsyncError", 20, 3},
    {"ncclAllReduce", 0, 1},
    {"ncclAllReduce", 2, 2},
    {"ncclGroupEnd", 0, 2},
    {"ncclGroupEnd", 1, 2},
    {"ncclRedOpCreatePreMulSum", 0, 2},
    {"ncclRedOpCreatePreMulSum", 1, 2},
    {"ncclRedOpDestroy", 0, 2},
    {"async", 0, 2},
    {"async", 10, 6},
};
const std::vector<Fault> kCudaFaults = {
    {"cuStreamCreateWithPriority", 0, 2},
    {"cuStreamWaitEvent", 0, 700},
    {"cuStreamWaitEvent", 1, 700},
    {"cuEventCreate", 1, 2},
    {"cuEventRecord", 1, 700},
    {"cuEventRecord", 3, 700},
    {"cuEventQuery", 3, 700},
};

// How an operation ended, by rank.
using Ends = std::vector<Status>;

// Steps until one fails, on each rank; then the job is over.
Ends run_into_fault(const FakeGpu& gpu, int ranks, const Environment& environment = {}, ReduceOp op = ReduceOp::sum) {
  Ends ends(static_cast<std::size_t>(ranks));
  const auto body = [&](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (int step = 0; step < 200; ++step) {
      const GpuTensor tensor(gpu, runtime, {1, 2, 3});
      CallArguments call = allreduce_of(tensor, "gradient");
      call.op = op;
      call.prescale = step < 50 ? 0.75 : 1.25;  // each is an operation of NCCL's
      const Status status = outcome(runtime, call);
      ends[static_cast<std::size_t>(rank)] = status;
      if (!status.ok()) return;
    }
  };
  // Who leaves a job that is over cannot take part in the barrier at the test's end.
  CHECK_THROWS(run_gpu_ranks(ranks, body, environment));
  return ends;
}

void check_fault(const Ends& ends, int ranks, const Fault& fault) {
  for (int rank = 0; rank < ranks; ++rank) {
    const Status& end = ends.at(static_cast<std::size_t>(rank));
    INFO(fault.function << " on rank " << rank << ": " << status_code_name(end.code()) << ": " << end.message());
    CHECK_FALSE(end.ok());
    CHECK((has(end.message(), "NCCL: ") || has(end.message(), "CUDA: ")));
    const bool is_local = rank == 1 || has(end.message(), "NCCL: ");
    CHECK((is_local || has(end.message(), kOfRank1 + " has given up the job")));
  }
  // The others have heard of it from rank 1, or, before it could say so, from NCCL. An asynchronous error is no call's.
  const bool of_a_call = std::string(fault.function) != "async";
  CHECK((!of_a_call || has(ends.at(1).message(), fault.function)));
}

}  // namespace

TEST_CASE("a call of NCCL's that fails ends the job on every rank with its name") {
  const Fault fault = GENERATE(from_range(kNcclFaults));
  const int ranks = GENERATE(2, 4);
  const FakeGpu gpu;
  gpu.nccl().inject(fault.function, 1, fault.after, fault.result);
  check_fault(run_into_fault(gpu, ranks), ranks, fault);
  CHECK(gpu.nccl().live_communicators() == 0);
}

TEST_CASE("a call of the driver's that fails ends the job on every rank with its name") {
  const Fault fault = GENERATE(from_range(kCudaFaults));
  const int ranks = GENERATE(2, 4);
  const FakeGpu gpu;
  gpu.cuda().inject(fault.function, 1, fault.after, fault.result);
  check_fault(run_into_fault(gpu, ranks), ranks, fault);
  CHECK(gpu.nccl().live_communicators() == 0);
}

TEST_CASE("a kernel that cannot be started ends the job on every rank with its name") {
  const Fault fault = GENERATE(Fault{"cuLaunchKernel", 0, 700}, Fault{"cuLaunchKernel", 3, 1});
  const FakeGpu gpu;
  gpu.cuda().inject(fault.function, 1, fault.after, fault.result);
  check_fault(run_into_fault(gpu, 2, {}, ReduceOp::min), 2, fault);
}

TEST_CASE("where one rank has no kernels, no rank uses them") {
  const Fault fault = GENERATE(Fault{"cuModuleLoadData", 0, 222}, Fault{"cuModuleGetFunction", 7, 500});
  const FakeGpu gpu;
  gpu.cuda().inject(fault.function, 1, fault.after, fault.result);
  REQUIRE_NOTHROW(run_gpu_ranks(3, [&](Runtime& runtime) {
    const GpuTensor tensor(gpu, runtime, {1, 2, 3});
    CallArguments call = allreduce_of(tensor, "scaled");
    call.op = ReduceOp::min;
    call.prescale = 0.75;
    require(has(outcome(runtime, call).message(), "it can scale sums only"), "a rank alone has scaled");
    perform(runtime, allreduce_of(tensor, "plain"));
    require(tensor.values() == std::vector<float>{3, 6, 9}, "wrong sums");
  }));
}

TEST_CASE("a packed buffer that NCCL does not take ends the job on every rank") {
  const Fault fault{"ncclCommRegister", 0, 1};
  const FakeGpu gpu;
  gpu.nccl().inject(fault.function, 1, fault.after, fault.result);
  check_fault(run_into_fault(gpu, 2, {}, ReduceOp::min), 2, fault);
}

TEST_CASE("a call before there is a communicator that fails is told to every rank") {
  const std::string function = GENERATE("ncclGetVersion", "ncclGetUniqueId");
  const FakeGpu gpu;
  gpu.nccl().inject(function.c_str(), -1, 0, 2);
  REQUIRE_NOTHROW(run_gpu_ranks(2, [&](Runtime& runtime) {
    const GpuTensor tensor(gpu, runtime, {1});
    const Status status = outcome(runtime, allreduce_of(tensor, "x"));
    require(status.code() == StatusCode::unsupported && has(status.message(), function), status.message());
  }));
}

TEST_CASE("the time in which an input is not ready does not count") {
  const FakeGpu gpu;
  std::atomic<bool> may_write{false};
  std::atomic<int> enqueued{0};
  const int ranks = 2;
  REQUIRE_NOTHROW(run_gpu_ranks(ranks,
                                [&](Runtime& runtime) {
                                  FakeGpu::Stream stream(gpu, runtime.topology().rank);
                                  const GpuTensor tensor(gpu, runtime, {1, 2});
                                  stream.put([&] {
                                    while (!may_write) std::this_thread::sleep_for(1ms);
                                  });
                                  CallerReference handle =
                                      runtime.submit(allreduce_of(tensor, "late", stream.handle()));
                                  require(handle->wait_until_enqueued(deadline_after(1min)), "not in the stream");
                                  if (++enqueued == ranks) {
                                    std::this_thread::sleep_for(5s);
                                    may_write = true;
                                  }
                                  require(handle->wait(deadline_after(1min)), "not over in a minute");
                                  require(handle->completion.outcome().ok(), handle->completion.outcome().message());
                                  stream.drain();
                                },
                                {{"HVD_COLLECTIVE_TIMEOUT_SECONDS", "4"}}));
}

TEST_CASE("a collective that never ends is given up after the job's timeout, and the streams behind it go on") {
  const FakeGpu gpu;
  gpu.nccl().inject("hang", 1, 3, 1);
  const int ranks = 3;
  Ends ends(static_cast<std::size_t>(ranks));
  CHECK_THROWS(
      run_gpu_ranks(ranks,
                    [&](Runtime& runtime) {
                      FakeGpu::Stream stream(gpu, runtime.topology().rank);
                      for (int step = 0; step < 100; ++step) {
                        const GpuTensor tensor(gpu, runtime, {1, 2, 3});
                        CallerReference handle = runtime.submit(allreduce_of(tensor, "gradient", stream.handle()));
                        if (handle->wait_until_enqueued(deadline_after(1min)) && handle->completion.status().ok()) {
                          handle->completion.on_device->hold_up(stream.handle());
                        }
                        require(handle->wait(deadline_after(1min)), "not over in a minute");
                        ends[static_cast<std::size_t>(runtime.topology().rank)] = handle->completion.outcome();
                        if (!handle->completion.outcome().ok()) break;
                      }
                      stream.drain();
                    },
                    {{"HVD_COLLECTIVE_TIMEOUT_SECONDS", "2"}}));
  int timeouts = 0;
  for (const Status& end : ends) {
    INFO(end.message());
    timeouts += end.code() == StatusCode::timeout ? 1 : 0;
    CHECK((end.code() == StatusCode::timeout || end.code() == StatusCode::aborted));
    CHECK(has(end.message(), "allreduce number 4 on GPU "));
    CHECK(has(end.message(), "has not ended within 2 s"));
  }
  CHECK(timeouts >= 1);
  CHECK(gpu.nccl().aborted_communicators() == ranks);
  CHECK(gpu.nccl().live_communicators() == 0);
}

TEST_CASE("who shuts down while an operation is stuck on the GPU learns that it has failed") {
  const FakeGpu gpu;
  gpu.nccl().inject("hang", 1, 0, 1);
  std::vector<CallerReference> handles(2);
  std::vector<std::optional<GpuTensor>> tensors(2);
  REQUIRE_NOTHROW(run_gpu_ranks(2,
                                [&](Runtime& runtime) {
                                  const auto rank = static_cast<std::size_t>(runtime.topology().rank);
                                  tensors[rank].emplace(gpu, runtime, std::vector<float>{1, 2});
                                  handles[rank] = runtime.submit(allreduce_of(*tensors[rank], "x"));
                                  require(handles[rank]->wait_until_enqueued(deadline_after(1min)),
                                          "not in the stream");
                                },
                                {{"HVD_COLLECTIVE_TIMEOUT_SECONDS", "2"}}));
  for (auto& handle : handles) {
    REQUIRE(handle->wait(deadline_after(1min)));
    CHECK(handle->completion.outcome().code() == StatusCode::shut_down);
  }
  CHECK(gpu.nccl().aborted_communicators() == 2);
}

TEST_CASE("a communicator that never comes about is given up after the job's timeout") {
  const FakeGpu gpu;
  gpu.nccl().inject("ncclCommInitRankConfig", 1, 0, kNeverReady);
  const Ends ends = run_into_fault(gpu, 2, {{"HVD_COLLECTIVE_TIMEOUT_SECONDS", "0.3"}});
  for (const Status& end : ends) {
    INFO(end.message());
    CHECK((end.code() == StatusCode::timeout || end.code() == StatusCode::aborted));
    CHECK(has(end.message(), "ncclCommInitRankConfig has not completed"));
  }
}

TEST_CASE("ranks with different versions of NCCL are told so, and go on without GPU tensors") {
  const FakeGpu gpu;
  const auto change = [](int rank, Environment& environment) {
    if (rank == 1) environment["HVD_NCCL_LIB"] = FakeGpu::older_nccl();
  };
  REQUIRE_NOTHROW(run_gpu_ranks(
      2,
      [&](Runtime& runtime) {
        for (int step = 0; step < 3; ++step) {
          const GpuTensor tensor(gpu, runtime, {1});
          const Status status = outcome(runtime, allreduce_of(tensor, "x"));
          require(status.code() == StatusCode::mismatch, status.message());
          require(has(status.message(), "rank 0 on host-0 (pid 1000) has NCCL 2.27.3, "), status.message());
          require(has(status.message(), kOfRank1 + " has NCCL 2.18.5, "), status.message());
        }
      },
      {}, change));
}

TEST_CASE("a rank without NCCL is named on every rank, and CPU tensors go on") {
  const FakeGpu gpu;
  const auto change = [](int rank, Environment& environment) {
    if (rank == 1) environment["HVD_NCCL_LIB"] = "/no/such/libnccl.so.2";
  };
  REQUIRE_NOTHROW(run_gpu_ranks(
      3,
      [&](Runtime& runtime) {
        for (int step = 0; step < 12; ++step) {  // beyond the first steps the schedule is locked
          const GpuTensor tensor(gpu, runtime, {1});
          const Status status = outcome(runtime, allreduce_of(tensor, "x"));
          require(status.code() == StatusCode::unsupported, status.message());
          require(has(status.message(), "on " + kOfRank1 + " there is no NCCL: /no/such/libnccl.so.2"),
                  status.message());
        }
      },
      {}, change));
}

TEST_CASE("without a driver a GPU tensor is refused at once") {
  const FakeGpu gpu;
  const Environment elsewhere{{"HVD_CUDA_LIB", "/no/such/libcuda.so"}};
  REQUIRE_NOTHROW(run_gpu_ranks(
      1,
      [&](Runtime& runtime) {
        const GpuTensor tensor(gpu, runtime, {1});
        const Status status = outcome(runtime, allreduce_of(tensor, "x"));
        require(status.code() == StatusCode::unsupported, status.message());
        require(has(status.message(), "lie on an accelerator, but there is no CUDA driver: /no/such"),
                status.message());
      },
      elsewhere));
}

TEST_CASE("what NCCL cannot do is an error that says why, on every rank, and the next operation is done") {
  const FakeGpu gpu;
  REQUIRE_NOTHROW(run_gpu_ranks(2, [&](Runtime& runtime) {
    const GpuTensor tensor(gpu, runtime, {1, 2});
    CallArguments call = allreduce_of(tensor, "x");
    call.op = ReduceOp::adasum;
    const Status status = outcome(runtime, call);
    require(status.code() == StatusCode::unsupported, status.message());
    require(has(status.message(), "NCCL cannot do allreduce (adasum) of float32"), status.message());
    perform(runtime, allreduce_of(tensor, "x"));
    require(tensor.values() == std::vector<float>{2, 4}, "the next one");
  }));
}

TEST_CASE("tensors on two devices are refused") {
  const FakeGpu gpu;
  REQUIRE_NOTHROW(run_gpu_ranks(1, [&](Runtime& runtime) {
    const GpuTensor tensor(gpu, runtime, {1, 2});
    perform(runtime, allreduce_of(tensor, "x"));
    CallArguments call = allreduce_of(tensor, "y");
    call.inputs[0].device = call.outputs[0].device = 3;
    const Status elsewhere = outcome(runtime, call);
    require(elsewhere.code() == StatusCode::invalid_argument, elsewhere.message());
    require(has(elsewhere.message(), "a rank has one GPU in a process set"), elsewhere.message());
    call.outputs[0].device = kCpuDevice;
    const Status mixed = outcome(runtime, call);
    require(mixed.code() == StatusCode::invalid_argument, mixed.message());
    call.inputs[0].device = call.outputs[0].device = 8;
    const Status nowhere = outcome(runtime, call);
    require(has(nowhere.message(), "there is no GPU 8"), nowhere.message());
  }));
}

TEST_CASE("ranks that disagree about where a tensor lies are told so") {
  const FakeGpu gpu;
  REQUIRE_NOTHROW(run_gpu_ranks(2, [&](Runtime& runtime) {
    const GpuTensor tensor(gpu, runtime, {1});
    float on_cpu = 1;
    CallArguments call = allreduce_of(tensor, "x");
    if (runtime.topology().rank == 1) {
      call.inputs = call.outputs = {{.data = &on_cpu, .dtype = DType::float32, .shape = {1}}};
    }
    const Status status = outcome(runtime, call);
    require(status.code() == StatusCode::mismatch && has(status.message(), "an accelerator"), status.message());
  }));
}

}  // namespace hvd::testing
