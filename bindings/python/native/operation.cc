#include "bindings/python/native/operation.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>

#include "bindings/python/native/process.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

struct Dropped {
  hvd_work* work;
  py::object owners;
};

// Guarded by the GIL. Never destroyed: at exit there is no interpreter to release the references to.
std::vector<Dropped>& dropped_works() {
  static auto* works = new std::vector<Dropped>;
  return *works;
}

// Results become DLPack capsules, through which every framework takes over memory without a copy, while hvd is not
// compiled against it. The capsules are the unversioned ones, which all frameworks read.

// DLPack's name for a capsule with a DLManagedTensor.
constexpr const char* kCapsuleName = "dltensor";

using OwnedMemory = std::unique_ptr<void, void (*)(void*)>;

struct Result {
  DLManagedTensor managed{};
  std::vector<std::int64_t> shape;
  OwnedMemory memory;
};

DLDataType dlpack_type(std::int32_t dtype) {
  static constexpr DLDataType kTypes[] = {{kDLUInt, 8, 1},   {kDLInt, 8, 1},    {kDLInt, 16, 1},    {kDLInt, 32, 1},
                                          {kDLInt, 64, 1},   {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 32, 1},
                                          {kDLFloat, 64, 1}, {kDLBool, 8, 1},   {kDLUInt, 16, 1},   {kDLUInt, 32, 1},
                                          {kDLUInt, 64, 1}};  // by hvd.h's dtypes
  static_assert(std::size(kTypes) == HVD_UINT64 + 1 && HVD_BFLOAT16 == 6 && HVD_BOOL == 9);
  if (dtype >= 0 && static_cast<std::size_t>(dtype) < std::size(kTypes)) return kTypes[dtype];
  throw py::value_error("a result of a type that DLPack cannot name");
}

void free_result(DLManagedTensor* managed) { delete static_cast<Result*>(managed->manager_ctx); }

// The consumer of a tensor renames the capsule.
void free_if_not_taken(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kCapsuleName) == 0) return;
  free_result(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsuleName)));
}

// The capsule owns the memory, that of `tensor`. The consumer of the capsule frees it, on any thread and without the
// GIL; a capsule without a consumer frees it when it is garbage collected.
py::capsule to_dlpack(const hvd_tensor& tensor, OwnedMemory memory, ElementName type = std::nullopt) {
  auto result = std::make_unique<Result>(Result{{}, {}, std::move(memory)});
  result->shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
  result->managed.dl_tensor = {
      .data = tensor.data,
      .device = tensor.device == HVD_CPU ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, tensor.device},
      .ndim = tensor.dimensions,
      .dtype = type ? DLDataType{static_cast<std::uint8_t>(type->first), static_cast<std::uint8_t>(type->second), 1}
                    : dlpack_type(tensor.dtype),
      .shape = result->shape.data(),
      .strides = nullptr,
      .byte_offset = 0};
  result->managed.manager_ctx = result.get();
  result->managed.deleter = free_result;
  PyObject* capsule = PyCapsule_New(&result->managed, kCapsuleName, free_if_not_taken);
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(result.release());
  return py::reinterpret_steal<py::capsule>(capsule);
}

hvd_tensor on_cpu(void* memory, const Shape& shape, int dtype) {
  return {.data = memory,
          .shape = shape.data(),
          .dimensions = static_cast<std::int32_t>(shape.size()),
          .dtype = dtype,
          .device = HVD_CPU,
          .reserved = 0};
}

}  // namespace

OperationSpec::OperationSpec(int collective, std::optional<std::string> name, int process_set,
                             std::vector<std::pair<Shape, int>> tensors, int op, int root, double prescale,
                             double postscale, std::optional<std::vector<std::int64_t>> splits, int device,
                             const std::optional<std::vector<std::int64_t>>& output_rows)
    : name_(std::move(name)), tensors_(std::move(tensors)), splits_(std::move(splits)), device_(device) {
  if (splits_ && splits_->empty()) throw py::value_error("splits must name a number of rows for each rank");
  call_.collective = collective;
  call_.count = tensors_.size();
  call_.process_set = process_set;
  call_.name = name_ ? name_->c_str() : nullptr;
  call_.reduce_op = op;
  call_.root_rank = root;
  call_.prescale = prescale;
  call_.postscale = postscale;
  call_.splits = splits_ ? splits_->data() : nullptr;
  call_.splits_count = splits_ ? splits_->size() : 0;
  if (!output_rows) return;
  if (output_rows->size() != tensors_.size()) throw py::value_error("output_rows must be as many as tensors");
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Shape& shape = output_shapes_.emplace_back(tensors_[i].first);
    if (shape.empty()) throw py::value_error("a tensor without dimensions has no output_rows");
    shape.front() = (*output_rows)[i];
  }
}

hvd_call OperationSpec::call_on(std::vector<hvd_tensor>& tensors, py::handle inputs, py::handle outputs,
                                Address stream) const {
  const auto add = [&](py::handle addresses, const std::vector<Shape>& shapes) {
    const auto list =
        py::reinterpret_steal<py::object>(PySequence_Fast(addresses.ptr(), "a list of addresses is needed"));
    if (!list) throw py::error_already_set();
    if (static_cast<std::size_t>(PySequence_Fast_GET_SIZE(list.ptr())) != tensors_.size()) {
      throw py::value_error("an address for each of the spec's tensors is needed");
    }
    PyObject* const* address = PySequence_Fast_ITEMS(list.ptr());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const Shape& shape = shapes.empty() ? tensors_[i].first : shapes[i];
      tensors.push_back({.data = PyLong_AsVoidPtr(*address++),
                         .shape = shape.data(),
                         .dimensions = static_cast<std::int32_t>(shape.size()),
                         .dtype = tensors_[i].second,
                         .device = device_,
                         .reserved = 0});
    }
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  };
  tensors.reserve(2 * tensors_.size());
  add(inputs, {});
  if (!outputs.is_none()) add(outputs, output_shapes_);
  hvd_call call = call_;
  call.inputs = tensors.data();
  call.outputs = outputs.is_none() ? nullptr : tensors.data() + tensors_.size();
  call.stream = reinterpret_cast<void*>(stream);
  return call;
}

void release_finished_works() {
  std::vector<Dropped>& works = dropped_works();
  if (works.empty()) return;
  const auto ended = std::stable_partition(works.begin(), works.end(),
                                           [](const Dropped& dropped) { return hvd_work_poll(dropped.work) == 0; });
  // Removed from the list before release: releasing an owner may run Python code, which may call this function again.
  const std::vector<Dropped> released(std::make_move_iterator(ended), std::make_move_iterator(works.end()));
  works.erase(ended, works.end());
  for (const Dropped& dropped : released) hvd_work_free(dropped.work);
}

Work::Work(const OperationSpec& spec, py::handle inputs, py::handle outputs, py::object owners, Address stream)
    : device_(spec.device()), owners_(std::move(owners)) {
  refuse_in_forked_child();
  release_finished_works();
  std::vector<hvd_tensor> tensors;
  const hvd_call call = spec.call_on(tensors, inputs, outputs, stream);
  check(hvd_submit(&call, &work_));
}

Work::Work(StartMessage start_message, const hvd_message& message, py::object owners)
    : device_(HVD_CPU), owners_(std::move(owners)) {
  refuse_in_forked_child();
  release_finished_works();
  check(start_message(&message, &work_));
}

namespace {

// As hvd_run(), for a slice of time once the operation has been started. One without a name is not started while an
// earlier one is under way, for which a thread may have waited in vain; signals are handled meanwhile.
hvd_status run_for_a_slice(const hvd_call& call, hvd_work*& work) {
  using Clock = std::chrono::steady_clock;
  const auto run = [&] {
    GilRelease released;
    return hvd_run(&call, kSliceUs, &work);
  };
  hvd_status status = run();
  // A timeout that comes at once is the reason for which the job has ended.
  for (bool at_once = false; work == nullptr && status == HVD_TIMEOUT && !at_once;) {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    const auto until = Clock::now() + std::chrono::microseconds(kSliceUs);
    status = run();
    at_once = Clock::now() < until;
  }
  return status;
}

}  // namespace

void Work::run(const OperationSpec& spec, py::handle inputs, py::handle outputs, py::object owners, Address stream) {
  if (spec.device() != HVD_CPU) return Work(spec, inputs, outputs, std::move(owners), stream).wait_on_stream(stream);
  refuse_in_forked_child();
  release_finished_works();
  std::vector<hvd_tensor> tensors;
  const hvd_call call = spec.call_on(tensors, inputs, outputs, stream);
  hvd_work* work = nullptr;
  const hvd_status status = run_for_a_slice(call, work);
  if (work == nullptr) return check(status);
  Work held(work, spec.device(), std::move(owners));
  if (status != HVD_OK) held.wait(std::nullopt);
}

std::vector<std::unique_ptr<Work>> Work::run_all(const py::sequence& calls) {
  refuse_in_forked_child();
  release_finished_works();
  const std::size_t count = calls.size();
  std::vector<std::vector<hvd_tensor>> tensors(count);
  std::vector<hvd_call> all;
  std::vector<py::object> owners;
  for (std::size_t i = 0; i < count; ++i) {
    const auto call = calls[i].cast<py::tuple>();
    all.push_back(call[0].cast<const OperationSpec&>().call_on(tensors[i], call[1], call[2], 0));
    owners.push_back(call[3]);
  }
  std::vector<hvd_work*> works(count);
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = hvd_run_all(all.data(), count, kSliceUs, works.data());
  }
  std::vector<std::unique_ptr<Work>> started;
  if (count == 0 || works.front() == nullptr) {
    check(status);
    return started;
  }
  for (std::size_t i = 0; i < count; ++i) started.emplace_back(new Work(works[i], HVD_CPU, std::move(owners[i])));
  if (status == HVD_OK) return started;
  for (const auto& work : started) work->wait_until_over();
  return started;
}

std::unique_ptr<Work> Work::prepare(const OperationSpec& spec, py::handle inputs, py::handle outputs, py::object owners,
                                    Address stream) {
  refuse_in_forked_child();
  std::vector<hvd_tensor> tensors;
  const hvd_call call = spec.call_on(tensors, inputs, outputs, stream);
  hvd_work* work = nullptr;
  check(hvd_prepare(&call, &work));
  return std::unique_ptr<Work>(new Work(work, spec.device(), std::move(owners)));
}

void Work::start() {
  refuse_in_forked_child();
  check_released([this] { return hvd_start(work_); });
}

void Work::start_and_wait() {
  refuse_in_forked_child();
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = hvd_start_and_wait(work_, kSliceUs);
  }
  if (status == HVD_TIMEOUT) {
    wait(std::nullopt);
  } else {
    check(status);
  }
}

Work::~Work() {
  if (work_ == nullptr) return;
  // In a forked child the runtime's locks are in an unknown state; its copy of the work is not released.
  if (in_forked_child() || hvd_work_poll(work_) == 0) {
    dropped_works().push_back({work_, std::move(owners_)});
  } else {
    hvd_work_free(work_);
  }
}

bool Work::poll() const {
  refuse_in_forked_child();
  return hvd_work_poll(work_) != 0;
}

bool Work::wait(std::optional<double> timeout_seconds) {
  return wait_in_slices(timeout_seconds, [this](std::int64_t timeout_us) { return hvd_work_wait(work_, timeout_us); });
}

void Work::wait_until_over() const {
  while (hvd_work_poll(work_) == 0) {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    const GilRelease released;
    static_cast<void>(hvd_work_wait(work_, kSliceUs));
  }
}

void Work::wait_on_stream(Address stream) {
  wait_in_slices(std::nullopt, [this, stream](std::int64_t timeout_us) {
    return hvd_work_wait_on_stream(work_, reinterpret_cast<void*>(stream), timeout_us);
  });
}

bool Work::wait_in_slices(std::optional<double> timeout_seconds,
                          const std::function<hvd_status(std::int64_t)>& wait_for) {
  refuse_in_forked_child();
  return python::wait_in_slices(timeout_seconds, [&](std::int64_t timeout_us) -> std::optional<hvd_status> {
    const hvd_status status = wait_for(timeout_us);
    if (status != HVD_TIMEOUT) return status;
    // It may be the operation's own result: a second call then returns it.
    return hvd_work_poll(work_) != 0 ? std::optional(hvd_work_wait(work_, 0)) : std::nullopt;
  });
}

py::capsule Work::output(std::size_t i, ElementName type, std::optional<int> dimensions) {
  refuse_in_forked_child();
  hvd_tensor tensor{};
  check(hvd_work_take_output(work_, i, &tensor));
  if (dimensions) tensor.dimensions = std::min(*dimensions, tensor.dimensions);
  return to_dlpack(tensor, {tensor.data, hvd_free}, type);
}

std::vector<std::int64_t> Work::received_splits() const {
  refuse_in_forked_child();
  const std::int64_t* splits = nullptr;
  std::size_t count = 0;
  check(hvd_work_received_splits(work_, &splits, &count));
  return {splits, splits + count};
}

int Work::last_joined() const {
  refuse_in_forked_child();
  std::int32_t rank = -1;
  check(hvd_work_last_joined(work_, &rank));
  return rank;
}

int Work::source() const {
  refuse_in_forked_child();
  std::int32_t rank = HVD_ANY_RANK;
  check(hvd_work_source(work_, &rank));
  return rank;
}

py::capsule empty(const Shape& shape, int dtype, std::size_t bytes) {
  refuse_in_forked_child();
  void* memory = nullptr;
  check(hvd_alloc(bytes, &memory));
  return to_dlpack(on_cpu(memory, shape, dtype), {memory, hvd_free});
}

py::capsule allocate(const Shape& shape, int dtype, std::size_t bytes, ElementName type) {
  constexpr std::size_t kAlignment = 128;
  void* memory = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return to_dlpack(on_cpu(memory, shape, dtype), {memory, std::free}, type);
}

}  // namespace hvd::python
