// hvd._native: the C interface (hvd.h) for Python: takes pointers, shapes and type codes, returns DLPack capsules. The
// packages of the frameworks convert their tensors.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/python/native/array.h"
#include "bindings/python/native/checksum.h"
#include "bindings/python/native/operation.h"
#include "bindings/python/native/process.h"
#include "bindings/python/native/tables.h"
#include "hvd.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

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
  check_released([&] { return hvd_add_process_set(ranks.data(), ranks.size(), &number); });
  return number;
}

void remove_process_set(int process_set) {
  refuse_in_forked_child();
  check_released([&] { return hvd_remove_process_set(process_set); });
}

void start_timeline(const std::string& path, bool mark_cycles) {
  refuse_in_forked_child();
  check(hvd_start_timeline(path.c_str(), mark_cycles ? 1 : 0));
}

void stop_timeline() {
  refuse_in_forked_child();
  check_released([] { return hvd_stop_timeline(); });
}

void define_process(py::module_& m) {
  m.def("version", hvd_version);
  m.def(
      "crc32c",
      [](const py::buffer& data) {
        const py::buffer_info info = data.request();
        const py::gil_scoped_release released;
        return crc32c({static_cast<const char*>(info.ptr), static_cast<std::size_t>(info.size * info.itemsize)});
      },
      py::arg("data"));
  m.def("environment_documentation", hvd_environment_documentation);
  m.def("init", init);
  m.def("init_standby", init_standby);
  m.def("init_with", init_with);
  m.def("launch", launch);
  m.def("epoch", epoch);
  m.def("stands_by", stands_by);
  m.def("report_synchronized", report_synchronized);
  m.def("watch_preemption", watch_preemption);
  m.def("report_preemption", report_preemption);
  m.def("report_leaving", report_leaving);
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
  m.def("local_cpus", [] { return topology().local_cpus; });
  m.def("algorithm_table", algorithm_table);
  m.def("gpu_libraries", gpu_libraries);
  m.def("metrics", metrics);
  m.def("add_process_set", add_process_set);
  m.def("remove_process_set", remove_process_set);
  m.def("start_timeline", start_timeline);
  m.def("stop_timeline", stop_timeline);
  m.def("empty", empty);
  m.def("allocate", allocate);
  m.def("arena_usage", arena_usage);
}

void define_operations(py::module_& m) {
  py::class_<OperationSpec>(m, "OperationSpec")
      .def(py::init<int, std::optional<std::string>, int, std::vector<std::pair<Shape, int>>, int, int, double, double,
                    std::optional<std::vector<std::int64_t>>, int, const std::optional<std::vector<std::int64_t>>&>(),
           py::arg("collective"), py::arg("name"), py::arg("process_set"), py::arg("tensors"),
           py::arg("op") = int{HVD_SUM}, py::arg("root") = 0, py::arg("prescale") = 1.0, py::arg("postscale") = 1.0,
           py::arg("splits") = py::none(), py::arg("device") = int{HVD_CPU}, py::arg("output_rows") = py::none())
      .def_property_readonly("device", &OperationSpec::device);
  py::class_<Work>(m, "Work")
      .def("start", &Work::start)
      .def("start_and_wait", &Work::start_and_wait)
      .def("poll", &Work::poll)
      .def("wait", &Work::wait, py::arg("timeout_seconds") = py::none())
      .def("wait_on_stream", &Work::wait_on_stream)
      .def_property_readonly("device", &Work::device)
      .def("output", &Work::output, py::arg("i"), py::arg("type") = py::none(), py::arg("dimensions") = py::none())
      .def("received_splits", &Work::received_splits)
      .def("last_joined", &Work::last_joined)
      .def("source", &Work::source);
  m.def(
      "submit",
      [](const OperationSpec& spec, py::handle inputs, py::handle outputs, py::object owners, Address stream) {
        return std::make_unique<Work>(spec, inputs, outputs, std::move(owners), stream);
      },
      py::arg("spec"), py::arg("inputs"), py::arg("outputs"), py::arg("owners"), py::arg("stream") = 0);
  m.def("run", Work::run, py::arg("spec"), py::arg("inputs"), py::arg("outputs"), py::arg("owners"),
        py::arg("stream") = 0);
  m.def("run_all", Work::run_all, py::arg("calls"));
  m.def("prepare", Work::prepare, py::arg("spec"), py::arg("inputs"), py::arg("outputs"), py::arg("owners"),
        py::arg("stream") = 0);
  m.def("send", start_message<hvd_send>);
  m.def("receive", start_message<hvd_receive>);
}

void define_arrays(py::module_& m) {
  m.def("buffer_address", buffer_address);
  m.def("plain_address", plain_address);
  m.def("capsule_address", capsule_address);
  py::class_<ManagedTensor>(m, "ManagedTensor", py::buffer_protocol())
      .def(py::init<const py::capsule&, std::optional<std::string>>(), py::arg("capsule"),
           py::arg("format") = py::none())
      .def_property_readonly("address", &ManagedTensor::address)
      .def_property_readonly("shape", &ManagedTensor::shape)
      .def_property_readonly("type", &ManagedTensor::type)
      .def_property_readonly("device", &ManagedTensor::device)
      .def_property_readonly("is_contiguous", &ManagedTensor::is_contiguous)
      .def_property_readonly("is_read_only", &ManagedTensor::is_read_only)
      .def_buffer(&ManagedTensor::buffer);
}

void define_constants(py::module_& m) {
  static constexpr std::pair<const char*, int> kConstants[] = {{"ALLREDUCE", HVD_ALLREDUCE},
                                                               {"ALLGATHER", HVD_ALLGATHER},
                                                               {"BROADCAST", HVD_BROADCAST},
                                                               {"ALLTOALL", HVD_ALLTOALL},
                                                               {"REDUCESCATTER", HVD_REDUCESCATTER},
                                                               {"BARRIER", HVD_BARRIER},
                                                               {"JOIN", HVD_JOIN},
                                                               {"ANY_RANK", HVD_ANY_RANK},
                                                               {"UINT8", HVD_UINT8},
                                                               {"INT8", HVD_INT8},
                                                               {"INT16", HVD_INT16},
                                                               {"INT32", HVD_INT32},
                                                               {"INT64", HVD_INT64},
                                                               {"FLOAT16", HVD_FLOAT16},
                                                               {"BFLOAT16", HVD_BFLOAT16},
                                                               {"FLOAT32", HVD_FLOAT32},
                                                               {"FLOAT64", HVD_FLOAT64},
                                                               {"BOOL", HVD_BOOL},
                                                               {"UINT16", HVD_UINT16},
                                                               {"UINT32", HVD_UINT32},
                                                               {"UINT64", HVD_UINT64}};
  for (const auto& [name, value] : kConstants) m.attr(name) = value;
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
  define_arrays(m);
  define_tables(m);
  define_constants(m);
}

}  // namespace hvd::python
