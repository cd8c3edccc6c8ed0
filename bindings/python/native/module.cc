// hvd._native: the C interface (hvd.h) for Python: takes pointers, shapes and type codes, returns DLPack capsules. The
// packages of the frameworks convert their tensors.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/python/native/arguments.h"
#include "bindings/python/native/dlpack.h"
#include "bindings/python/native/process.h"
#include "bindings/python/native/status.h"
#include "bindings/python/native/work.h"
#include "hvd.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

constexpr std::size_t kMaxDimensions = 64;  // as in PyTorch and NumPy

using Address = std::uintptr_t;
using TensorDescription = std::tuple<Address, py::tuple, int>;  // data, shape, dtype

class Shape {
 public:
  explicit Shape(const py::tuple& shape) : dimensions_(shape.size()) {
    if (dimensions_ > kMaxDimensions) throw py::value_error("a tensor of more than 64 dimensions");
    for (std::size_t i = 0; i < dimensions_; ++i) {
      sizes_[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.ptr(), static_cast<Py_ssize_t>(i)));
    }
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  }

  hvd_tensor tensor(Address data, int dtype, int device = HVD_CPU) const {
    return {.data = reinterpret_cast<void*>(data),
            .shape = sizes_.data(),
            .dimensions = static_cast<std::int32_t>(dimensions_),
            .dtype = dtype,
            .device = device,
            .reserved = 0};
  }

 private:
  std::size_t dimensions_;
  std::array<std::int64_t, kMaxDimensions> sizes_;  // only the first dimensions_ are set
};

hvd_call make_call(int collective, py::handle name, int process_set, py::handle op, py::handle root,
                   py::handle prescale, py::handle postscale) {
  hvd_call call = HVD_CALL_INIT;
  call.collective = collective;
  call.process_set = process_set;
  call.name = to_name(name);
  call.reduce_op = to_reduce_op(op);
  call.root_rank = to_rank(root, "root_rank");
  call.prescale = to_factor(prescale, "prescale_factor");
  call.postscale = to_factor(postscale, "postscale_factor");
  return call;
}

// A call on one tensor whose result has the same shape if the caller provides memory for it. Valid within its scope.
struct SingleCall {
  SingleCall(int collective, py::handle name, int process_set, py::handle op, py::handle root, py::handle prescale,
             py::handle postscale, Address input, const py::tuple& shape, int dtype, std::optional<Address> output,
             int device, Address stream)
      : shape_(shape),
        input_(shape_.tensor(input, dtype, device)),
        output_(shape_.tensor(output.value_or(0), dtype, device)),
        call(make_call(collective, name, process_set, op, root, prescale, postscale)) {
    call.count = 1;
    call.inputs = &input_;
    call.outputs = output ? &output_ : nullptr;
    call.stream = reinterpret_cast<void*>(stream);
  }
  SingleCall(const SingleCall&) = delete;
  SingleCall& operator=(const SingleCall&) = delete;

 private:
  Shape shape_;
  hvd_tensor input_;
  hvd_tensor output_;

 public:
  hvd_call call;
};

std::unique_ptr<Work> submit_one(int collective, py::handle name, int process_set, py::handle op, py::handle root,
                                 py::handle prescale, py::handle postscale, Address input, const py::tuple& shape,
                                 int dtype, std::optional<Address> output, py::object owners, int device,
                                 Address stream) {
  const SingleCall single(collective, name, process_set, op, root, prescale, postscale, input, shape, dtype, output,
                          device, stream);
  return std::make_unique<Work>(single.call, std::move(owners));
}

// The hot path of synchronous calls: creates no Python object for the operation.
void run_one(int collective, py::handle name, int process_set, py::handle op, py::handle root, py::handle prescale,
             py::handle postscale, Address input, const py::tuple& shape, int dtype, Address output, py::object owners,
             int device, Address stream) {
  const SingleCall single(collective, name, process_set, op, root, prescale, postscale, input, shape, dtype, output,
                          device, stream);
  Work::run(single.call, std::move(owners));
}

std::unique_ptr<Work> submit(int collective, py::handle name, int process_set, py::handle op, py::handle root,
                             py::handle prescale, py::handle postscale, const std::vector<TensorDescription>& tensors,
                             const std::optional<std::vector<Address>>& outputs,
                             const std::optional<std::vector<std::int64_t>>& splits, py::object owners, int device,
                             Address stream) {
  if (outputs && outputs->size() != tensors.size()) throw py::value_error("as many outputs as inputs are needed");
  if (splits && splits->empty()) throw py::value_error("splits must name a number of rows for each rank");
  std::vector<Shape> shapes;
  std::vector<hvd_tensor> input_tensors;
  std::vector<hvd_tensor> output_tensors;
  shapes.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [data, shape, dtype] = tensors[i];
    shapes.emplace_back(shape);
    input_tensors.push_back(shapes.back().tensor(data, dtype, device));
    if (outputs) output_tensors.push_back(shapes.back().tensor((*outputs)[i], dtype, device));
  }
  hvd_call call = make_call(collective, name, process_set, op, root, prescale, postscale);
  call.count = tensors.size();
  call.inputs = input_tensors.data();
  call.outputs = outputs ? output_tensors.data() : nullptr;
  call.splits = splits ? splits->data() : nullptr;
  call.splits_count = splits ? splits->size() : 0;
  call.stream = reinterpret_cast<void*>(stream);
  return std::make_unique<Work>(call, std::move(owners));
}

template <Work::StartMessage kStart>
std::unique_ptr<Work> start_message(int peer, std::uint64_t channel, std::int64_t tag, Address data, std::size_t bytes,
                                    py::object owners) {
  hvd_message message = HVD_MESSAGE_INIT;
  message.peer = peer;
  message.channel = channel;
  message.tag = tag;
  message.data = reinterpret_cast<void*>(data);
  message.bytes = bytes;
  return std::make_unique<Work>(kStart, message, std::move(owners));
}

// Allocates uninitialised memory of the shared arena as a DLPack capsule.
py::capsule empty(const py::tuple& shape, int dtype, std::size_t bytes) {
  refuse_in_forked_child();
  void* memory = nullptr;
  check(hvd_alloc(bytes, &memory));
  return to_dlpack(Shape(shape).tensor(reinterpret_cast<Address>(memory), dtype));
}

std::tuple<std::size_t, std::size_t, std::size_t> arena_usage() {
  refuse_in_forked_child();
  hvd_arena_usage usage = HVD_ARENA_USAGE_INIT;
  check(hvd_get_arena_usage(&usage));
  return {usage.limit, usage.used, usage.peak};
}

std::string gpu_libraries() {
  const char* text = nullptr;
  check(hvd_describe_gpu_libraries(&text));
  return text;
}

std::string algorithm_table() {
  refuse_in_forked_child();
  const char* text = nullptr;
  check(hvd_get_algorithm_table(&text));
  return text;
}

py::dict metrics() {
  refuse_in_forked_child();
  const hvd_metric* first = nullptr;
  std::size_t count = 0;
  check(hvd_get_metrics(&first, &count));
  py::dict metrics;
  for (std::size_t i = 0; i < count; ++i) metrics[first[i].name] = first[i].value;
  return metrics;
}

int add_process_set(const std::vector<std::int32_t>& ranks) {
  refuse_in_forked_child();
  std::int32_t number = 0;
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = hvd_add_process_set(ranks.data(), ranks.size(), &number);
  }
  check(status);
  return number;
}

void remove_process_set(int process_set) {
  refuse_in_forked_child();
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = hvd_remove_process_set(process_set);
  }
  check(status);
}

void start_timeline(const std::string& path, bool mark_cycles) {
  refuse_in_forked_child();
  check(hvd_start_timeline(path.c_str(), mark_cycles ? 1 : 0));
}

void stop_timeline() {
  refuse_in_forked_child();
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = hvd_stop_timeline();
  }
  check(status);
}

void define_process(py::module_& m) {
  m.def("version", hvd_version);
  m.def("environment_documentation", hvd_environment_documentation);
  m.def("init", init);
  m.def("init_with", init_with);
  m.def("launch", launch);
  m.def("shutdown", shutdown);
  m.def("fail", fail);
  m.def("call_uninterrupted", call_uninterrupted);
  m.def("is_initialized", is_initialized);
  m.def("rank", [] { return topology().rank; });
  m.def("size", [] { return topology().size; });
  m.def("local_rank", [] { return topology().local_rank; });
  m.def("local_size", [] { return topology().local_size; });
  m.def("cross_rank", [] { return topology().cross_rank; });
  m.def("cross_size", [] { return topology().cross_size; });
  m.def("is_homogeneous", [] { return topology().homogeneous != 0; });
  m.def("algorithm_table", algorithm_table);
  m.def("gpu_libraries", gpu_libraries);
  m.def("metrics", metrics);
  m.def("add_process_set", add_process_set);
  m.def("remove_process_set", remove_process_set);
  m.def("start_timeline", start_timeline);
  m.def("stop_timeline", stop_timeline);
  m.def("empty", empty);
  m.def("arena_usage", arena_usage);
}

void define_operations(py::module_& m) {
  py::class_<Work>(m, "Work")
      .def("poll", &Work::poll)
      .def("wait", &Work::wait, py::arg("timeout_seconds") = py::none())
      .def("wait_on_stream", &Work::wait_on_stream)
      .def_property_readonly("device", &Work::device)
      .def("output", &Work::output)
      .def("received_splits", &Work::received_splits)
      .def("last_joined", &Work::last_joined)
      .def("source", &Work::source);
  m.def("submit_one", submit_one);
  m.def("run_one", run_one);
  m.def("submit", submit);
  m.def("send", start_message<hvd_send>);
  m.def("receive", start_message<hvd_receive>);
}

void define_constants(py::module_& m) {
  m.attr("ALLREDUCE") = static_cast<int>(HVD_ALLREDUCE);
  m.attr("ALLGATHER") = static_cast<int>(HVD_ALLGATHER);
  m.attr("BROADCAST") = static_cast<int>(HVD_BROADCAST);
  m.attr("ALLTOALL") = static_cast<int>(HVD_ALLTOALL);
  m.attr("REDUCESCATTER") = static_cast<int>(HVD_REDUCESCATTER);
  m.attr("BARRIER") = static_cast<int>(HVD_BARRIER);
  m.attr("JOIN") = static_cast<int>(HVD_JOIN);

  m.attr("ANY_RANK") = int{HVD_ANY_RANK};

  m.attr("UINT8") = static_cast<int>(HVD_UINT8);
  m.attr("INT8") = static_cast<int>(HVD_INT8);
  m.attr("INT16") = static_cast<int>(HVD_INT16);
  m.attr("INT32") = static_cast<int>(HVD_INT32);
  m.attr("INT64") = static_cast<int>(HVD_INT64);
  m.attr("FLOAT16") = static_cast<int>(HVD_FLOAT16);
  m.attr("BFLOAT16") = static_cast<int>(HVD_BFLOAT16);
  m.attr("FLOAT32") = static_cast<int>(HVD_FLOAT32);
  m.attr("FLOAT64") = static_cast<int>(HVD_FLOAT64);
  m.attr("BOOL") = static_cast<int>(HVD_BOOL);
  m.attr("UINT16") = static_cast<int>(HVD_UINT16);
  m.attr("UINT32") = static_cast<int>(HVD_UINT32);
  m.attr("UINT64") = static_cast<int>(HVD_UINT64);
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "The C interface of hvd (hvd.h) for Python; used by hvd's packages for the frameworks.";
  if (hvd_abi_version() != HVD_ABI_VERSION) {
    throw py::import_error("libhvd.so has another version of the C interface than hvd._native was built for");
  }
  import_exceptions();
  watch_forks();
  define_process(m);
  define_operations(m);
  define_constants(m);
}

}  // namespace hvd::python
