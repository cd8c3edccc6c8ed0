// NCCL's symbols. See fake_nccl.h.
#include "tests/support/fake_nccl/fake_nccl.h"

#include <cstring>
#include <string>

#include "ops/gpu/nccl_library.h"
#include "tests/conformance/element.h"
#include "tests/support/fake_cuda/injections.h"
#include "tests/support/fake_nccl/shared_communicator.h"

#define HVD_FAKE extern "C" __attribute__((visibility("default")))

extern "C" {
int cuCtxGetDevice(int* device);
int cuStreamIsCapturing(void* stream, int* status);
int fake_cuda_launch(void* stream, const std::function<void()>* task);
}

namespace {

using namespace hvd::testing;
using hvd::DType;
using hvd::nccl::Config;
using hvd::nccl::Type;
using hvd::nccl::UniqueId;

constexpr int kUnhandledCudaError = 1, kInvalidArgument = 4, kInProgress = 7;
constexpr int kFirstScaledSum = 5;

struct State {
  Injections injections;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<SharedCommunicator>>
      shared_communicators;                                          // by unique id; guarded by mutex, as all below
  std::map<void*, std::shared_ptr<FakeCommunicator>> communicators;  // by handle
  int ids = 0;
  int aborted = 0;
};

State& state() {
  static auto* const one = new State;
  return *one;
}

thread_local int group_depth = 0;
thread_local std::vector<std::pair<FakeBatch, void*>> grouped;  // with their streams

std::shared_ptr<FakeCommunicator> find(void* handle) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().communicators.find(handle);
  return found == state().communicators.end() ? nullptr : found->second;
}

// On a communicator that is ready, from a thread that has its device.
int refusal(const char* function, const std::shared_ptr<FakeCommunicator>& communicator) {
  if (communicator == nullptr) return kInvalidArgument;
  if (const int injected = state().injections.of(function, communicator->rank)) return injected;
  int device = -1;
  if (cuCtxGetDevice(&device) != 0 || device != communicator->device) return kInvalidUsage;
  const std::lock_guard lock(communicator->shared_communicator->mutex);
  const bool ready = communicator->shared_communicator->joined == communicator->shared_communicator->size &&
                     communicator->busy_looks == 0;
  return ready && !communicator->finalized ? 0 : kInvalidUsage;
}

DType dtype_of(int type) {
  switch (static_cast<Type>(type)) {
    case Type::int8: return DType::int8;
    case Type::uint8: return DType::uint8;
    case Type::int32: return DType::int32;
    case Type::int64: return DType::int64;
    case Type::float16: return DType::float16;
    case Type::float32: return DType::float32;
    case Type::float64: return DType::float64;
    case Type::bfloat16: return DType::bfloat16;
  }
  return DType::uint8;
}

void begin(FakeBatch& batch) {
  for (const FakeOperation& operation : batch.operations) {
    if (operation.kind == FakeKind::send || operation.kind == FakeKind::receive) continue;
    batch.number = ++batch.communicator->batches;
    break;
  }
  ++batch.communicator->outstanding;
}

void perform(const FakeBatch& batch) {
  batch.communicator->shared_communicator->perform(batch);
  --batch.communicator->outstanding;
}

// In a graph a batch begins each time that the graph is launched.
int launch(FakeBatch batch, void* stream) {
  FakeCommunicator& communicator = *batch.communicator;
  batch.hangs = state().injections.of("hang", communicator.rank) != 0;
  int captured = 0;
  if (cuStreamIsCapturing(stream, &captured) != 0) return kUnhandledCudaError;
  if (captured == 0) begin(batch);
  communicator.busy_looks = 2;
  const std::function<void()> task = [batch, captured] {
    FakeBatch own = batch;
    if (captured != 0) begin(own);
    perform(own);
  };
  if (fake_cuda_launch(stream, &task) == 0) return 0;
  if (captured == 0) --communicator.outstanding;
  return kUnhandledCudaError;
}

int put(const char* function, void* handle, void* stream, FakeOperation operation) {
  const auto communicator = find(handle);
  if (const int result = refusal(function, communicator)) return result;
  if (operation.op >= kFirstScaledSum) {
    const auto found = communicator->scaled_sums.find(operation.op);
    if (found == communicator->scaled_sums.end()) return kInvalidArgument;
    operation.scale = found->second;
    operation.op = 0;
  }
  operation.registered =
      communicator->has_registered(operation.input) && communicator->has_registered(operation.output);
  if (group_depth == 0) {
    const int result = launch({communicator, {operation}, 0, false}, stream);
    return result == 0 ? kInProgress : result;
  }
  for (auto& [batch, its_stream] : grouped) {
    if (batch.communicator != communicator || its_stream != stream) continue;
    batch.operations.push_back(operation);
    return 0;
  }
  grouped.push_back({{communicator, {operation}, 0, false}, stream});
  return 0;
}

}  // namespace

HVD_FAKE int ncclGetVersion(int* version) {
  if (const int injected = state().injections.of("ncclGetVersion", -1)) return injected;
  return *version = HVD_FAKE_NCCL_VERSION, 0;
}

HVD_FAKE int ncclGetUniqueId(UniqueId* id) {
  if (const int injected = state().injections.of("ncclGetUniqueId", -1)) return injected;
  const std::lock_guard lock(state().mutex);
  std::memset(id->bytes, 0, sizeof id->bytes);
  const std::string text = "shared_communicator " + std::to_string(++state().ids);
  std::memcpy(id->bytes + 64, text.data(), text.size());  // nobody may take it for a string
  return 0;
}

HVD_FAKE const char* ncclGetErrorString(int) { return "an error of the fake NCCL"; }
HVD_FAKE const char* ncclGetLastError(void*) { return "the fake was told to fail"; }

HVD_FAKE int ncclCommInitRankConfig(void** handle, int size, UniqueId id, int rank, Config* config) {
  const int injected = state().injections.of("ncclCommInitRankConfig", rank);
  if (injected > 0) return injected;
  if (config->magic != 0xcafebeef || config->size != sizeof(Config) || config->blocking != 0) return kInvalidArgument;
  auto made = std::make_shared<FakeCommunicator>();
  if (cuCtxGetDevice(&made->device) != 0) return kInvalidUsage;
  made->rank = rank;
  made->never_ready = injected == kNeverReady;
  const std::lock_guard lock(state().mutex);
  auto& shared_communicator = state().shared_communicators[std::string(id.bytes, sizeof id.bytes)];
  if (!shared_communicator) shared_communicator = std::make_shared<SharedCommunicator>(size);
  made->shared_communicator = shared_communicator;
  const std::lock_guard joining(shared_communicator->mutex);
  if (!made->never_ready) ++shared_communicator->joined;
  state().communicators[made.get()] = made;
  *handle = made.get();
  return kInProgress;
}

HVD_FAKE int ncclCommGetAsyncError(void* handle, int* result) {
  const auto communicator = find(handle);
  if (communicator == nullptr) return kInvalidArgument;
  if (const int injected = state().injections.of("ncclCommGetAsyncError", communicator->rank)) return injected;
  const int failure = state().injections.of("async", communicator->rank);
  const std::lock_guard lock(communicator->shared_communicator->mutex);
  *result = failure != 0 ? failure : communicator->failure.load();
  if (*result != 0) return 0;
  if (communicator->busy_looks > 0) --communicator->busy_looks;
  const bool busy = communicator->shared_communicator->joined < communicator->shared_communicator->size ||
                    communicator->busy_looks > 0 || (communicator->finalized && communicator->outstanding > 0);
  *result = busy ? kInProgress : 0;
  return 0;
}

HVD_FAKE int ncclCommFinalize(void* handle) {
  const auto communicator = find(handle);
  if (const int result = refusal("ncclCommFinalize", communicator)) return result;
  communicator->finalized = true;
  return kInProgress;
}

HVD_FAKE int ncclCommDestroy(void* handle) {
  const auto communicator = find(handle);
  if (communicator == nullptr) return kInvalidArgument;
  const bool in_use = communicator->outstanding > 0 || !communicator->registered.empty();
  if (in_use || !communicator->finalized) return kInvalidUsage;
  const std::lock_guard lock(state().mutex);
  state().communicators.erase(handle);
  return 0;
}

HVD_FAKE int ncclCommAbort(void* handle) {
  const auto communicator = find(handle);
  if (communicator == nullptr) return kInvalidArgument;
  {
    const std::lock_guard lock(communicator->shared_communicator->mutex);
    communicator->aborted = true;
    communicator->shared_communicator->changed.notify_all();
  }
  const std::lock_guard lock(state().mutex);
  state().communicators.erase(handle);
  ++state().aborted;
  return 0;
}

HVD_FAKE int ncclRedOpCreatePreMulSum(int* op, void* scale, int type, int, void* handle) {
  const auto communicator = find(handle);
  if (const int result = refusal("ncclRedOpCreatePreMulSum", communicator)) return result;
  *op = kFirstScaledSum + communicator->made_scaled_sums++;
  communicator->scaled_sums[*op] = get_element(dtype_of(type), static_cast<const std::byte*>(scale), 0);
  return 0;
}

HVD_FAKE int ncclRedOpDestroy(int op, void* handle) {
  const auto communicator = find(handle);
  if (const int result = refusal("ncclRedOpDestroy", communicator)) return result;
  return communicator->scaled_sums.erase(op) == 1 ? 0 : kInvalidArgument;
}

#if HVD_FAKE_NCCL_VERSION >= 21900
HVD_FAKE int ncclCommRegister(void* handle, void* memory, std::size_t bytes, void** registration) {
  const auto communicator = find(handle);
  if (const int result = refusal("ncclCommRegister", communicator)) return result;
  if (memory == nullptr || bytes == 0) return kInvalidArgument;
  *registration = communicator->registered.emplace(memory, bytes).second ? memory : nullptr;
  return *registration == nullptr ? kInvalidUsage : 0;
}

HVD_FAKE int ncclCommDeregister(void* handle, void* registration) {
  const auto communicator = find(handle);
  if (const int result = refusal("ncclCommDeregister", communicator)) return result;
  return communicator->registered.erase(registration) == 1 ? 0 : kInvalidArgument;
}
#endif

HVD_FAKE int ncclGroupStart() {
  if (const int injected = state().injections.of("ncclGroupStart", -1)) return injected;
  ++group_depth;
  return 0;
}

HVD_FAKE int ncclGroupEnd() {
  if (group_depth == 0) return kInvalidUsage;
  if (--group_depth > 0) return 0;
  std::vector<std::pair<FakeBatch, void*>> batches;
  batches.swap(grouped);
  for (auto& [batch, stream] : batches) {
    if (const int injected = state().injections.of("ncclGroupEnd", batch.communicator->rank)) return injected;
    if (const int result = launch(std::move(batch), stream)) return result;
  }
  return batches.empty() ? 0 : kInProgress;
}

HVD_FAKE int ncclAllReduce(const void* input, void* output, std::size_t count, int type, int op, void* handle,
                           void* stream) {
  return put("ncclAllReduce", handle, stream, {FakeKind::allreduce, input, output, count, dtype_of(type), op, 1, 0});
}

HVD_FAKE int ncclReduce(const void* input, void* output, std::size_t count, int type, int op, int root, void* handle,
                        void* stream) {
  return put("ncclReduce", handle, stream, {FakeKind::reduce, input, output, count, dtype_of(type), op, 1, root});
}

HVD_FAKE int ncclReduceScatter(const void* input, void* output, std::size_t count, int type, int op, void* handle,
                               void* stream) {
  return put("ncclReduceScatter", handle, stream,
             {FakeKind::reducescatter, input, output, count, dtype_of(type), op, 1, 0});
}

HVD_FAKE int ncclBroadcast(const void* input, void* output, std::size_t count, int type, int root, void* handle,
                           void* stream) {
  return put("ncclBroadcast", handle, stream, {FakeKind::broadcast, input, output, count, dtype_of(type), 0, 1, root});
}

HVD_FAKE int ncclAllGather(const void* input, void* output, std::size_t count, int type, void* handle, void* stream) {
  return put("ncclAllGather", handle, stream, {FakeKind::allgather, input, output, count, dtype_of(type), 0, 1, 0});
}

HVD_FAKE int ncclSend(const void* input, std::size_t count, int type, int peer, void* handle, void* stream) {
  return put("ncclSend", handle, stream, {FakeKind::send, input, nullptr, count, dtype_of(type), 0, 1, peer});
}

HVD_FAKE int ncclRecv(void* output, std::size_t count, int type, int peer, void* handle, void* stream) {
  return put("ncclRecv", handle, stream, {FakeKind::receive, nullptr, output, count, dtype_of(type), 0, 1, peer});
}

HVD_FAKE void fake_nccl_inject(const char* function, int rank, int after, int result) {
  state().injections.add(function, rank, after, result);
}

HVD_FAKE int fake_nccl_calls(const char* prefix) { return state().injections.calls(prefix); }

HVD_FAKE void fake_nccl_reset() {
  state().injections.clear();
  const std::lock_guard lock(state().mutex);
  state().aborted = 0;
}

HVD_FAKE int fake_nccl_live_communicators() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int>(state().communicators.size());
}

HVD_FAKE int fake_nccl_aborted_communicators() {
  const std::lock_guard lock(state().mutex);
  return state().aborted;
}
