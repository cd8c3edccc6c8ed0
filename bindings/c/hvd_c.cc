// The C interface: checks and converts arguments, calls the runtime, converts exceptions to status codes.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bindings/c/arguments.h"
#include "bindings/c/instance.h"
#include "core/base/error.h"
#include "core/bootstrap/launch_environment.h"
#include "hvd.h"
#include "ops/registry.h"

namespace {

using namespace hvd;

static_assert(HVD_OK == static_cast<int>(StatusCode::ok) && HVD_INTERNAL == static_cast<int>(StatusCode::internal));
static_assert(HVD_UINT8 == static_cast<int>(DType::uint8) && HVD_UINT64 == static_cast<int>(DType::uint64));
static_assert(HVD_ALLREDUCE == static_cast<int>(Collective::allreduce) &&
              HVD_JOIN == static_cast<int>(Collective::join));
static_assert(HVD_AVERAGE == static_cast<int>(ReduceOp::average) && HVD_PRODUCT == static_cast<int>(ReduceOp::product));
static_assert(int{HVD_CPU} == kCpuDevice && int{HVD_ANY_RANK} == kAnyRank);

// Out of line, to keep the path of a correct call short.
[[noreturn, gnu::cold, gnu::noinline]] void throw_dimensions(std::int32_t dimensions) {
  throw InvalidArgument("a tensor with " + std::to_string(dimensions) + " dimensions");
}

// Inline: a call of one tensor is converted in a few tens of instructions.
[[gnu::always_inline]] inline TensorView to_view(const hvd_tensor& tensor) {
  const bool has_shape = tensor.shape != nullptr || tensor.dimensions == 0;
  if (tensor.dimensions < 0 || tensor.dimensions > kMaxDimensions || !has_shape) throw_dimensions(tensor.dimensions);
  return {.data = tensor.data,
          .dtype = known(dtype_from, tensor.dtype, "dtype"),
          .shape = {tensor.shape, static_cast<std::size_t>(tensor.dimensions)},
          .device = tensor.device};
}

// An `hvd_call` converted to a `Call`. Rejects unknown enum values and null pointers; allocates nothing for a single
// tensor.
class ConvertedCall {
 public:
  explicit ConvertedCall(const hvd_call* caller) : ConvertedCall(current(required(caller, "call"))) {}
  ConvertedCall(const ConvertedCall&) = delete;
  ConvertedCall& operator=(const ConvertedCall&) = delete;

  operator const Call&() const { return call_; }

 private:
  explicit ConvertedCall(const hvd_call& c)
      : call_{.collective = known(collective_from, c.collective, "collective"),
              .process_set = c.process_set,
              .name = c.name != nullptr ? std::string_view(c.name) : std::string_view(),
              .op = known(reduce_op_from, c.reduce_op, "reduce_op"),
              .root = c.root_rank,
              .priority = c.priority,
              .prescale = c.prescale,
              .postscale = c.postscale,
              .splits = {c.splits, c.splits != nullptr ? c.splits_count : 0},
              .stream = c.stream} {  // HVD_ALL_STREAMS is kAllStreams
    if (c.count > 0 && c.inputs == nullptr) throw_null("inputs");
    if (c.count == 1) {
      one_[0] = to_view(*c.inputs);
      call_.inputs = {&one_[0], 1};
      if (c.outputs == nullptr) return;
      one_[1] = to_view(*c.outputs);
      call_.outputs = {&one_[1], 1};
      call_.outputs_are_like_inputs = one_[1].dtype == one_[0].dtype && one_[1].device == one_[0].device &&
                                      equal_shapes(one_[1].shape, one_[0].shape);
    } else if (c.count > 1) {
      refer_to_many(c);
    }
  }

  [[gnu::noinline]] void refer_to_many(const hvd_call& c) {
    for (const hvd_tensor* tensors : {c.inputs, c.outputs}) {
      if (tensors == nullptr) continue;
      for (std::size_t i = 0; i < c.count; ++i) many_.push_back(to_view(tensors[i]));
    }
    const std::span<const TensorView> all = many_;
    call_.inputs = all.first(c.count);
    call_.outputs = all.subspan(c.count);
  }

  static const hvd_call& current(const hvd_call& caller) {
    return caller.struct_size == sizeof(hvd_call) ? caller : upgraded(caller);
  }
  // Copies a call of an older hvd.h, with defaults for the fields that it lacks.
  [[gnu::noinline]] static const hvd_call& upgraded(const hvd_call& caller) {
    thread_local hvd_call copy;
    return copy = copy_versioned(caller, hvd_call HVD_CALL_INIT, "hvd_call");
  }

  TensorView one_[2];  // input and output, if there is one of each
  std::vector<TensorView> many_;
  Call call_;
};

Message to_message(const hvd_message& caller) {
  const hvd_message m = copy_versioned(caller, hvd_message HVD_MESSAGE_INIT, "hvd_message");
  if (m.bytes > 0 && m.data == nullptr) throw InvalidArgument("hvd_message.data is NULL");
  return {.peer = m.peer, .channel = m.channel, .tag = m.tag, .memory = {static_cast<std::byte*>(m.data), m.bytes}};
}

Rendezvous to_rendezvous(const hvd_rendezvous& caller) {
  const hvd_rendezvous m = copy_versioned(caller, hvd_rendezvous HVD_RENDEZVOUS_INIT, "hvd_rendezvous");
  if (m.broadcast == nullptr) throw InvalidArgument("hvd_rendezvous.broadcast is NULL");
  if (m.size < 1 || m.rank < 0 || m.rank >= m.size) {
    throw InvalidArgument("hvd_rendezvous: rank " + std::to_string(m.rank) + " of " + std::to_string(m.size));
  }
  return {.rank = m.rank, .size = m.size, .local_size = m.local_size, .broadcast = [m](std::span<std::byte> bytes) {
            const hvd_status status = m.broadcast(m.context, bytes.data(), bytes.size());
            if (status != HVD_OK) throw Internal("the broadcast of hvd_init_with() has failed");
          }};
}

// The pointer is the caller's reference to the operation, so that nothing else must be allocated.
hvd_work* to_pointer(CallerReference operation) { return reinterpret_cast<hvd_work*>(operation.release()); }

Operation& held(hvd_work* work) { return reinterpret_cast<Operation&>(required(work, "work")); }

// For functions that wait: throws in a forked child, where no operation ends.
Operation& held_here(hvd_work* work) {
  Operation& operation = held(work);
  if (Instance::get().forked()) throw Error(StatusCode::not_initialized, "a forked child cannot wait for this work");
  return operation;
}

// hvd_start() may have posted an operation whose second half is the caller's: these hand it to the engine, or do
// it on this thread. After shutdown the operation has ended.
void hand_to_engine(Operation& operation) {
  if (!operation.caller_completes()) return;
  try {
    Instance::get().runtime()->prepared().hand_to_engine(operation);
  } catch (const Error&) {
  }
}
void wait_posted(Operation& operation, Duration timeout) {
  try {
    Instance::get().runtime()->prepared().wait_posted(operation, timeout);
  } catch (const Error&) {
  }
}

const Completion& finished(hvd_work* work) {
  const Completion& state = held(work).completion;
  if (!state.done()) throw InvalidArgument("the work is not done yet: wait for it first");
  if (const Status end = state.outcome(); !end.ok()) throw Error(end);
  return state;
}

OwnedTensor& output_of(hvd_work* work, std::size_t i) {
  finished(work);
  auto& outputs = held(work).memory.outputs;
  if (i >= outputs.size()) throw InvalidArgument("the work has no output " + std::to_string(i));
  if (outputs[i].data() == nullptr && elements_of(outputs[i].shape) > 0) {
    throw InvalidArgument("output " + std::to_string(i) + " of the work was taken before");
  }
  return outputs[i];
}

Status end_of(Operation& operation) {
  return operation.poll() ? operation.completion.outcome() : Status(StatusCode::timeout, "the work is not done yet");
}

void check_end(Operation& operation) {
  if (const Status end = end_of(operation); !end.ok()) throw Error(end);
}

void wait_on_stream(Operation& operation, void* stream, Deadline deadline) {
  if (stream == kAllStreams) {
    throw InvalidArgument("HVD_ALL_STREAMS cannot wait for an operation: pass the stream that is to wait");
  }
  if (!operation.wait_until_enqueued(deadline)) throw Timeout("the work is not done yet");
  // A failed operation may also be in the runtime's stream, and access the caller's memory.
  if (operation.completion.on_device) operation.completion.on_device->hold_up(stream);
  if (!operation.completion.status().ok()) throw Error(operation.completion.status());
}

// This process's place in the job or, if it stands by, the place that it would have.
hvd_topology current_topology() {
  hvd_topology result = HVD_TOPOLOGY_INIT;
  const auto fill = [&result](const auto& p) {
    result.size = p.size;
    result.local_rank = p.local_rank;
    result.local_size = p.local_size;
    result.cross_rank = p.cross_rank;
    result.cross_size = p.cross_size;
  };
  if (const auto expected_rank = Instance::get().expected_rank()) {
    fill(*expected_rank);
    result.rank = expected_rank->size - 1;
    result.homogeneous = 0;
    return result;
  }
  const auto runtime = Instance::get().runtime();
  const Topology& topology = runtime->topology();
  fill(topology);
  result.rank = topology.rank;
  result.homogeneous = topology.homogeneous ? 1 : 0;
  result.local_cpus = topology.local_cpus;
  return result;
}

// ---- Callbacks of hvd_work_on_done()

// Deleted once it was called, which happens because every operation ends.
struct DoneCallback {
  void (*done)(void*);
  void* context;
};

void call_back(void* callback) {
  const std::unique_ptr<DoneCallback> own(static_cast<DoneCallback*>(callback));
  const bool before = std::exchange(is_called_back, true);
  own->done(own->context);
  is_called_back = before;
}

hvd_status start_message(const hvd_message* message, hvd_work** work,
                         CallerReference (Runtime::*start)(const Message&)) {
  return guarded([&] {
    hvd_work*& out = required(work, "work");
    out = nullptr;
    const Message what = to_message(required(message, "message"));
    out = to_pointer((*Instance::get().runtime().*start)(what));
  });
}

void describe(const OwnedTensor& tensor, hvd_tensor& out) {
  out = {.data = tensor.data(),
         .shape = tensor.shape.data(),
         .dimensions = static_cast<std::int32_t>(tensor.shape.size()),
         .dtype = static_cast<std::int32_t>(tensor.dtype),
         .device = tensor.device,
         .reserved = 0};
}

}  // namespace

extern "C" {

int hvd_abi_version(void) { return HVD_ABI_VERSION; }

const char* hvd_version(void) { return HVD_VERSION_TEXT; }

const char* hvd_status_name(hvd_status status) { return status_code_name(static_cast<StatusCode>(status)); }

const char* hvd_last_error(void) { return Instance::last_error().c_str(); }

hvd_status hvd_init(void) {
  return guarded([] {
    refuse_in_callback("hvd_init");
    Instance::get().init();
  });
}

hvd_status hvd_init_standby(void (*joined)(void* context), void* context) {
  return guarded([&] {
    refuse_in_callback("hvd_init_standby");
    std::function<void()> call;
    if (joined != nullptr) call = [joined, context] { joined(context); };
    Instance::get().init_standby(std::move(call));
  });
}

hvd_status hvd_init_with(const hvd_rendezvous* rendezvous) {
  return guarded([&] {
    refuse_in_callback("hvd_init_with");
    Instance::get().init(to_rendezvous(required(rendezvous, "rendezvous")));
  });
}

hvd_status hvd_get_launch(hvd_launch* launch) {
  return guarded([&] {
    Launch found = read_launch(process_environment());
    if (found.process && Instance::get().initialized()) {
      const hvd_topology topology = current_topology();
      found.rank = topology.rank;
      found.size = topology.size;
    }
    store_versioned(required(launch, "launch"),
                    hvd_launch{.struct_size = sizeof(hvd_launch),
                               .launcher = kLaunchers[static_cast<std::size_t>(found.launcher)].id,
                               .rank = found.rank,
                               .size = found.size,
                               .local_size = found.local_size,
                               .reserved = 0},
                    "hvd_launch");
  });
}

hvd_status hvd_shutdown(void) {
  return guarded([] {
    refuse_in_callback("hvd_shutdown");
    Instance::get().shut_down();
  });
}

hvd_status hvd_fail(const char* cause) {
  return guarded([&] {
    if (cause == nullptr || *cause == '\0') throw InvalidArgument("a failure needs a cause");
    Instance::get().fail(cause);
  });
}

int hvd_is_initialized(void) { return Instance::get().initialized() ? 1 : 0; }

hvd_status hvd_get_topology(hvd_topology* topology) {
  return guarded([&] { store_versioned(required(topology, "topology"), current_topology(), "hvd_topology"); });
}

hvd_status hvd_get_epoch(hvd_epoch* epoch) {
  return guarded([&] {
    hvd_epoch found = HVD_EPOCH_INIT;
    found.stands_by = Instance::get().expected_rank() ? 1 : 0;
    if (const auto member = found.stands_by != 0 ? nullptr : Instance::get().member()) {
      found.number = member->place().epoch;
      found.has_newcomers = member->place().has_newcomers ? 1 : 0;
      found.change = static_cast<std::int32_t>(member->change());
      found.starting = member->starting();
    }
    store_versioned(required(epoch, "epoch"), found, "hvd_epoch");
  });
}

hvd_status hvd_report_synchronized(void) {
  return guarded([] {
    if (const auto member = Instance::get().member()) member->report_synchronized();
  });
}

hvd_status hvd_report_preempted(void) {
  return guarded([] {
    if (const auto member = Instance::get().member()) member->report_preempted();
  });
}

hvd_status hvd_add_process_set(const int32_t* ranks, size_t count, int32_t* process_set) {
  return guarded([&] {
    refuse_in_callback("hvd_add_process_set");
    std::int32_t& out = required(process_set, "process_set");
    if (count > 0) required(ranks, "ranks");
    out = Instance::get().runtime()->sets().add(std::vector<int>(ranks, ranks + count));
  });
}

hvd_status hvd_remove_process_set(int32_t process_set) {
  return guarded([&] {
    refuse_in_callback("hvd_remove_process_set");
    Instance::get().runtime()->sets().remove(process_set);
  });
}

hvd_status hvd_get_process_set(int32_t process_set, const int32_t** ranks, size_t* count) {
  return guarded([&] {
    thread_local std::vector<std::int32_t> copy;
    const std::int32_t*& first = required(ranks, "ranks");
    std::size_t& size = required(count, "count");
    copy = Instance::get().runtime()->sets().find(process_set).set->ranks;
    first = copy.data();
    size = copy.size();
  });
}

hvd_status hvd_submit(const hvd_call* call, hvd_work** work) {
  return guarded([&] {
    hvd_work*& out = required(work, "work");
    out = nullptr;
    out = to_pointer(Instance::get().runtime()->submit(ConvertedCall(call)));
  });
}

hvd_status hvd_prepare(const hvd_call* call, hvd_work** work) {
  return guarded([&] {
    hvd_work*& out = required(work, "work");
    out = nullptr;
    out = to_pointer(Instance::get().runtime()->prepared().prepare(ConvertedCall(call)));
  });
}

hvd_status hvd_start(hvd_work* work) {
  return guarded([&] {
    Operation& operation = held(work);
    const auto runtime = Instance::get().runtime();
    if (is_called_back && operation.completion.done() && operation.engine_holds()) {
      throw InvalidArgument("hvd_start() was called by the callback of the same work: let another thread do it");
    }
    runtime->prepared().start(operation);
  });
}

hvd_status hvd_start_and_wait(hvd_work* work, int64_t timeout_us) {
  return guarded([&] {
    refuse_in_callback("hvd_start_and_wait");
    Operation& operation = held(work);
    Instance::get().runtime()->prepared().run(operation, timeout_of(timeout_us));
    check_end(operation);
  });
}

hvd_status hvd_send(const hvd_message* message, hvd_work** work) {
  return start_message(message, work, &Runtime::send);
}

hvd_status hvd_receive(const hvd_message* message, hvd_work** work) {
  return start_message(message, work, &Runtime::receive);
}

hvd_status hvd_work_source(hvd_work* work, int32_t* rank) {
  return guarded([&] { required(rank, "rank") = finished(work).source; });
}

// In a forked child no operation is pending any more.
int hvd_work_poll(hvd_work* work) {
  if (work == nullptr) return 0;
  if (Instance::get().forked()) return 1;
  hand_to_engine(held(work));
  return held(work).poll() ? 1 : 0;
}

hvd_status hvd_work_wait(hvd_work* work, int64_t timeout_us) {
  return guarded([&] {
    Operation& operation = held_here(work);
    if (timeout_us != 0 && !operation.poll()) refuse_in_callback("hvd_work_wait");
    const Duration timeout = timeout_of(timeout_us);
    const Deadline deadline = later(Clock::now(), timeout);
    if (operation.caller_completes()) wait_posted(operation, timeout);
    operation.wait(deadline);
    check_end(operation);
  });
}

hvd_status hvd_work_wait_on_stream(hvd_work* work, void* stream, int64_t timeout_us) {
  return guarded([&] {
    Operation& operation = held_here(work);
    hand_to_engine(operation);
    if (timeout_us != 0 && !operation.completion.done()) refuse_in_callback("hvd_work_wait_on_stream");
    wait_on_stream(operation, stream, deadline_in(timeout_us));
  });
}

hvd_status hvd_work_on_done(hvd_work* work, void (*done)(void* context), void* context) {
  return guarded([&] {
    if (done == nullptr) throw InvalidArgument("done is NULL");
    Operation& operation = held_here(work);
    auto callback = std::make_unique<DoneCallback>(DoneCallback{done, context});
    hand_to_engine(operation);
    operation.completion.call_when_done(call_back, callback.release());
  });
}

hvd_status hvd_run(const hvd_call* call, int64_t timeout_us, hvd_work** work) {
  return guarded([&] {
    refuse_in_callback("hvd_run");
    if (work != nullptr) *work = nullptr;
    if (work == nullptr && timeout_us >= 0) {
      throw InvalidArgument(
          "work is NULL, but the operation may outlast the timeout: pass a work, or -1 as timeout_us");
    }
    const auto runtime = Instance::get().runtime();
    CallerReference operation = runtime->run(ConvertedCall(call), timeout_of(timeout_us));
    if (operation == nullptr) return;  // performed already
    Operation& same = *operation;
    if (work != nullptr) *work = to_pointer(std::move(operation));
    check_end(same);
  });
}

hvd_status hvd_run_all(const hvd_call* calls, size_t count, int64_t timeout_us, hvd_work** works) {
  return guarded([&] {
    refuse_in_callback("hvd_run_all");
    if (count > 0) required(calls, "calls");
    if (works != nullptr) std::fill_n(works, count, nullptr);
    if (works == nullptr && timeout_us >= 0) {
      throw InvalidArgument("works is NULL, but operations may outlast the timeout: pass works, or -1 as timeout_us");
    }
    const auto runtime = Instance::get().runtime();
    std::deque<ConvertedCall> callers;  // the calls refer to them
    std::vector<Call> all;
    for (std::size_t i = 0; i < count; ++i) {  // calls of an older hvd.h are shorter
      const auto* call = reinterpret_cast<const std::byte*>(calls) + i * calls->struct_size;
      all.push_back(callers.emplace_back(reinterpret_cast<const hvd_call*>(call)));
    }
    std::vector<CallerReference> operations = runtime->run_all(all, timeout_of(timeout_us));
    Status first;
    for (const CallerReference& operation : operations) {
      if (first.ok()) first = end_of(*operation);
    }
    for (std::size_t i = 0; works != nullptr && i < count; ++i) works[i] = to_pointer(std::move(operations[i]));
    if (!first.ok()) throw Error(first);
  });
}

hvd_status hvd_work_output(hvd_work* work, size_t i, hvd_tensor* output) {
  return guarded([&] { describe(output_of(work, i), required(output, "output")); });
}

hvd_status hvd_work_take_output(hvd_work* work, size_t i, hvd_tensor* output) {
  return guarded([&] {
    OwnedTensor& tensor = output_of(work, i);
    describe(tensor, required(output, "output"));
    if (tensor.on_device) Instance::get().keep(std::move(tensor.on_device));
    static_cast<void>(tensor.memory.release());
  });
}

hvd_status hvd_alloc(size_t bytes, void** memory) {
  return guarded([&] {
    void*& out = required(memory, "memory");  // checked before anything is allocated
    out = Instance::get().allocate(bytes);
  });
}

void hvd_free(void* memory) {
  static_cast<void>(guarded([&] { Instance::get().free(memory); }));
}

hvd_status hvd_get_arena_usage(hvd_arena_usage* usage) {
  return guarded([&] {
    const auto arena = Instance::get().runtime()->arena();
    const auto now = arena ? arena->usage() : TensorArena::Usage{};
    store_versioned(required(usage, "usage"), {sizeof(hvd_arena_usage), now.limit, now.used, now.peak},
                    "hvd_arena_usage");
  });
}

hvd_status hvd_work_received_splits(hvd_work* work, const int64_t** splits, size_t* count) {
  return guarded([&] {
    const auto& received = finished(work).received_splits;
    required(splits, "splits") = received.data();
    required(count, "count") = received.size();
  });
}

hvd_status hvd_work_last_joined(hvd_work* work, int32_t* rank) {
  return guarded([&] { required(rank, "rank") = finished(work).last_joined; });
}

void hvd_work_free(hvd_work* work) {
  if (work == nullptr) return;
  hand_to_engine(held(work));
  static_cast<void>(CallerReference(&held(work)));
}

hvd_status hvd_get_algorithm_table(const char** text) {
  return guarded([&] {
    thread_local std::string copy;
    const char*& out = required(text, "text");
    copy = Instance::get().joined_runtime()->algorithms();
    out = copy.c_str();
  });
}

hvd_status hvd_get_metrics(const hvd_metric** metrics, size_t* count) {
  return guarded([&] {
    thread_local std::vector<hvd_metric> copy;
    const hvd_metric*& first = required(metrics, "metrics");
    std::size_t& size = required(count, "count");
    copy.clear();
    for (const NamedMetric& metric : list(*Instance::get().metrics())) {
      copy.push_back({metric.name, metric.value});
    }
    first = copy.data();
    size = copy.size();
  });
}

hvd_status hvd_start_timeline(const char* path, int mark_cycles) {
  return guarded([&] {
    if (path == nullptr || *path == '\0') throw InvalidArgument("a timeline needs the name of a file");
    Instance::get().joined_runtime()->start_timeline(path, mark_cycles != 0);
  });
}

hvd_status hvd_stop_timeline(void) {
  return guarded([] {
    refuse_in_callback("hvd_stop_timeline");
    Instance::get().joined_runtime()->stop_timeline();
  });
}

hvd_status hvd_describe_gpu_libraries(const char** text) {
  return guarded([&] {
    thread_local std::string copy;
    const char*& out = required(text, "text");
    Environment libraries;  // other variables may be invalid
    for (const auto& [name, value] : process_environment()) {
      if (name == "HVD_CUDA_LIB" || name == "HVD_NCCL_LIB") libraries.emplace(name, value);
    }
    copy = describe_gpu_libraries(read_config(libraries).config.gpu);
    out = copy.c_str();
  });
}

const char* hvd_environment_documentation(void) {
  static const auto* const text = new std::string(environment_documentation());
  return text->c_str();
}

}  // extern "C"
