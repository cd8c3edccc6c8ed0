#include "bindings/python/native/tables.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/python/native/process.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// Calls that Python has dropped while they were in progress, with what keeps their memory.
struct DroppedCall {
  std::shared_ptr<ParameterServers> servers;
  hvd_ps_work* work;
  py::object owners;
};

std::vector<DroppedCall>& dropped_calls() {
  static auto* const calls = new std::vector<DroppedCall>;
  return *calls;
}

// A poll may have to connect again: not with the GIL.
void release_finished_calls() {
  if (dropped_calls().empty()) return;
  std::vector<DroppedCall> calls = std::exchange(dropped_calls(), {});
  std::vector<bool> is_done;
  for (const DroppedCall& call : calls) is_done.push_back(call.servers->is_closed());
  {
    const GilRelease released;
    for (std::size_t i = 0; i < calls.size(); ++i) is_done[i] = is_done[i] || hvd_ps_work_poll(calls[i].work) != 0;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (is_done[i]) hvd_ps_work_free(calls[i].work);
    }
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!is_done[i]) dropped_calls().push_back(std::move(calls[i]));
  }
}

template <typename Number>
Number number_of(const std::string& field, py::handle value) {
  try {
    return value.cast<Number>();
  } catch (const py::cast_error&) {
    const std::string what = field + " is " + py::repr(value).cast<std::string>() + ": ";
    if (PyIndex_Check(value.ptr()) != 0) throw py::value_error(what + "it is out of range");
    throw py::type_error(what + (std::is_integral_v<Number> ? "expected an integer" : "expected a number"));
  }
}

}  // namespace

ParameterServers::ParameterServers() {
  refuse_in_forked_child();
  check_released([this] { return hvd_ps_connect(&ps_); });
}

// Without close(): the process ends in an error, or the object was forgotten. Releases the GIL, which the server in
// this process may need for an update in Python.
ParameterServers::~ParameterServers() {
  if (ps_ == nullptr || in_forked_child()) return;
  const GilRelease released;
  hvd_ps_abandon(ps_);
}

hvd_ps* ParameterServers::open_ps() const {
  refuse_in_forked_child();
  if (ps_ == nullptr) throw py::value_error("the connections with the parameter servers are closed");
  return ps_;
}

int ParameterServers::open(const std::string& name, const py::kwargs& fields) {
  hvd_ps_optimizer optimizer = HVD_PS_OPTIMIZER_INIT;
  hvd_ps_table table = HVD_PS_TABLE_INIT;
  table.name = name.c_str();
  table.optimizer = &optimizer;
  std::string update;
  const std::pair<const char*, std::int32_t*> integers[] = {{"dense", &table.dense},
                                                            {"consistency", &table.consistency},
                                                            {"width", &table.width},
                                                            {"bound", &table.bound},
                                                            {"average", &table.average},
                                                            {"rule", &optimizer.rule},
                                                            {"row_wise", &optimizer.row_wise},
                                                            {"nesterov", &optimizer.nesterov},
                                                            {"initializer", &table.initializer},
                                                            {"filled", &table.filled},
                                                            {"state", &optimizer.state},
                                                            {"max_age", &table.max_age},
                                                            {"cache", &table.cache}};
  const std::pair<const char*, float*> numbers[] = {{"learning_rate", &optimizer.learning_rate},
                                                    {"momentum", &optimizer.momentum},
                                                    {"weight_decay", &optimizer.weight_decay},
                                                    {"beta1", &optimizer.beta1},
                                                    {"beta2", &optimizer.beta2},
                                                    {"epsilon", &optimizer.epsilon},
                                                    {"accumulator", &optimizer.accumulator},
                                                    {"beta", &optimizer.beta},
                                                    {"l1", &optimizer.l1},
                                                    {"l2", &optimizer.l2},
                                                    {"a", &table.a},
                                                    {"b", &table.b},
                                                    {"compensation", &optimizer.compensation}};
  for (const auto& [key, value] : fields) {
    const auto field = key.cast<std::string>();
    const auto is_field = [&](const auto& one) { return field == one.first; };
    if (const auto* one = std::ranges::find_if(integers, is_field); one != std::end(integers)) {
      *one->second = number_of<std::int32_t>(field, value);
    } else if (const auto* other = std::ranges::find_if(numbers, is_field); other != std::end(numbers)) {
      *other->second = number_of<float>(field, value);
    } else if (field == "rows") {
      table.rows = number_of<std::int64_t>(field, value);
    } else if (field == "seed") {
      table.seed = number_of<std::uint64_t>(field, value);
    } else if (field == "update") {
      update = value.cast<std::string>();
      optimizer.update = update.c_str();
    } else {
      throw py::type_error("a table has no field " + field);
    }
  }
  std::int32_t number = 0;
  const Use ps(*this);
  check_released([&] { return hvd_ps_open(ps, &table, &number); });
  return number;
}

std::pair<std::uint64_t, std::uint64_t> ParameterServers::cache_counts(int table) const {
  std::uint64_t found = 0, missing = 0;
  const Use ps(*this);
  check_released([&] { return hvd_ps_cache_counts(ps, table, &found, &missing); });
  return {found, missing};
}

template <typename Start>
std::unique_ptr<TableWork> ParameterServers::started(py::object owners, const Start& start) {
  const Use ps(*this);
  release_finished_calls();
  hvd_ps_work* work = nullptr;
  check_released([&] { return start(ps, &work); });
  return std::make_unique<TableWork>(shared_from_this(), work, std::move(owners));
}

std::unique_ptr<TableWork> ParameterServers::start(Kind kind, int table, std::uintptr_t keys, std::size_t count,
                                                   std::uintptr_t gradients, std::uintptr_t rows, py::object owners) {
  const auto* const key = reinterpret_cast<const std::uint64_t*>(keys);
  const auto* const gradient = reinterpret_cast<const float*>(gradients);
  auto* const row = reinterpret_cast<float*>(rows);
  return started(std::move(owners), [&](hvd_ps* ps, hvd_ps_work** work) {
    switch (kind) {
      case Kind::pull: return hvd_ps_pull(ps, table, key, count, row, work);
      case Kind::push: return hvd_ps_push(ps, table, key, count, gradient, work);
      case Kind::push_pull: break;
    }
    return hvd_ps_push_pull(ps, table, key, count, gradient, row, work);
  });
}

std::unique_ptr<TableWork> ParameterServers::fill(int table, std::uintptr_t values, std::size_t count,
                                                  py::object owners) {
  return started(std::move(owners), [&](hvd_ps* ps, hvd_ps_work** work) {
    return hvd_ps_fill(ps, table, reinterpret_cast<const float*>(values), count, work);
  });
}

void ParameterServers::clock() {
  const Use ps(*this);
  check_released([&] { return hvd_ps_clock(ps); });
}

std::pair<std::uint32_t, std::uint32_t> ParameterServers::clocks() const {
  std::uint32_t own = 0, lowest = 0;
  const Use ps(*this);
  check_released([&] { return hvd_ps_get_clock(ps, &own, &lowest); });
  return {own, lowest};
}

bool ParameterServers::flush(std::optional<double> timeout_seconds) {
  const Use ps(*this);
  const auto wait = [&](std::int64_t timeout_us) { return unless_timeout(hvd_ps_flush(ps, timeout_us)); };
  if (!wait_in_slices(timeout_seconds, wait)) return false;
  release_finished_calls();
  wait_in_slices(0.0, wait);  // raises the error of a call that was dropped in progress, which nobody knew of before
  return true;
}

std::unique_ptr<TableWork> ParameterServers::set_learning_rate(int table, float rate) {
  return started({}, [&](hvd_ps* ps, hvd_ps_work** work) { return hvd_ps_set_learning_rate(ps, table, rate, work); });
}

std::unique_ptr<TableWork> ParameterServers::stats() {
  return started({}, [](hvd_ps* ps, hvd_ps_work** work) { return hvd_ps_stats(ps, work); });
}

std::unique_ptr<TableWork> ParameterServers::snapshot(const std::string& folder) {
  return started({}, [&](hvd_ps* ps, hvd_ps_work** work) { return hvd_ps_snapshot(ps, folder.c_str(), work); });
}

std::unique_ptr<TableWork> ParameterServers::restore(const std::string& folder) {
  return started({}, [&](hvd_ps* ps, hvd_ps_work** work) { return hvd_ps_restore(ps, folder.c_str(), work); });
}

std::pair<int, bool> ParameterServers::servers() const {
  std::int32_t servers = 0, are_others = 0;
  check(hvd_ps_servers(Use(*this), &servers, &are_others));
  return {servers, are_others != 0};
}

void ParameterServers::close() {
  if (ps_ == nullptr) return;
  refuse_in_forked_child();
  std::exception_ptr failure;
  // Here signals are looked at; after an interrupt it may be called again.
  const auto try_to = [&](const auto& wait) {
    try {
      wait();
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) throw;
      if (!failure) failure = std::current_exception();
    } catch (const std::exception&) {
      if (!failure) failure = std::current_exception();
    }
  };
  try_to([this] { flush(std::nullopt); });
  try_to([this] {
    const Use ps(*this);
    wait_in_slices(std::nullopt, [&](std::int64_t timeout_us) { return unless_timeout(hvd_ps_leave(ps, timeout_us)); });
  });
  hvd_ps* const ps = std::exchange(ps_, nullptr);
  while (users_ > 0) {
    const GilRelease released;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  try {
    check_released([&] { return hvd_ps_close(ps); });
  } catch (const std::exception&) {
    if (!failure) failure = std::current_exception();
  }
  is_closed_ = true;
  release_finished_calls();
  if (failure) std::rethrow_exception(failure);
}

TableWork::~TableWork() {
  if (work_ == nullptr) return;
  if (is_done_ && !in_forked_child()) {
    const GilRelease released;
    hvd_ps_work_free(work_);
  } else {
    dropped_calls().push_back({servers_, work_, std::move(owners_)});
  }
}

void TableWork::require_open() const { static_cast<void>(servers_->open_ps()); }

bool TableWork::poll() {
  require_open();
  const GilRelease released;
  return hvd_ps_work_poll(work_) != 0;
}

bool TableWork::wait(std::optional<double> timeout_seconds) {
  require_open();
  return wait_in_slices(timeout_seconds, [this](std::int64_t timeout_us) {
    const hvd_status status = hvd_ps_work_wait(work_, timeout_us);
    is_done_ = status != HVD_TIMEOUT && hvd_ps_work_poll(work_) != 0;  // the job may have failed, and the call goes on
    return unless_timeout(status);
  });
}

bool is_server() {
  hvd_launch launch = HVD_LAUNCH_INIT;
  return hvd_get_launch(&launch) == HVD_OK && launch.rank < 0;
}

namespace {

py::memoryview rows_of(float* values, std::size_t count, std::size_t columns, bool is_readonly) {
  static float none = 0;
  const auto rows = static_cast<py::ssize_t>(count), width = static_cast<py::ssize_t>(columns);
  const auto bytes = static_cast<py::ssize_t>(sizeof(float));
  return py::memoryview::from_buffer(columns == 0 ? &none : values, {rows, width}, {width * bytes, bytes}, is_readonly);
}

// `context` is the function.
int call_update(float* rows, float* state, const float* gradients, std::size_t count, std::size_t columns,
                std::size_t state_columns, float learning_rate, void* context) {
  if (Py_IsInitialized() == 0) return 1;
  const py::gil_scoped_acquire gil;
  try {
    py::handle(static_cast<PyObject*>(context))(rows_of(rows, count, columns, false),
                                                rows_of(const_cast<float*>(gradients), count, columns, true),
                                                rows_of(state, count, state_columns, false), learning_rate);
    return 0;
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("an update of hvd.ps.register_update()");
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    PyErr_WriteUnraisable(static_cast<PyObject*>(context));
  }
  return 1;
}

}  // namespace

void register_update(const std::string& name, const py::function& function) {
  check(hvd_ps_register_update(name.c_str(), call_update, py::object(function).release().ptr()));
}

void serve_tables() {
  check_released([] { return hvd_ps_serve(); });
}

void define_tables(py::module_& m) {
  m.def("is_server", is_server);
  m.def("serve_tables", serve_tables);
  m.def("register_update", register_update);
  py::class_<TableWork>(m, "TableWork")
      .def("poll", &TableWork::poll)
      .def("wait", &TableWork::wait, py::arg("timeout_seconds") = py::none())
      .def_property_readonly("version", &TableWork::version)
      .def_property_readonly("stats", &TableWork::stats);
  py::enum_<ParameterServers::Kind>(m, "TableCall")
      .value("PULL", ParameterServers::Kind::pull)
      .value("PUSH", ParameterServers::Kind::push)
      .value("PUSH_PULL", ParameterServers::Kind::push_pull);
  py::class_<ParameterServers, std::shared_ptr<ParameterServers>>(m, "ParameterServers")
      .def(py::init<>())
      .def("open", &ParameterServers::open)
      .def("cache_counts", &ParameterServers::cache_counts)
      .def("start", &ParameterServers::start)
      .def("fill", &ParameterServers::fill)
      .def("clock", &ParameterServers::clock)
      .def_property_readonly("clocks", &ParameterServers::clocks)
      .def("flush", &ParameterServers::flush, py::arg("timeout_seconds") = py::none())
      .def("set_learning_rate", &ParameterServers::set_learning_rate)
      .def("stats", &ParameterServers::stats)
      .def("snapshot", &ParameterServers::snapshot)
      .def("restore", &ParameterServers::restore)
      .def_property_readonly("servers", &ParameterServers::servers)
      .def("close", &ParameterServers::close)
      .def_property_readonly("is_closed", &ParameterServers::is_closed);
}

}  // namespace hvd::python
