#include "bindings/python/native/process.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <exception>

#include "bindings/python/native/operation.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// HorovodInternalError. Never released: a thread may still raise during interpreter shutdown.
PyObject* internal_error = nullptr;

// Called when an operation has let a process join that stood by. Never released, either.
py::handle joined_from_standby;

// Written by init() and shutdown() under the GIL, and by the single thread of a forked child.
bool started = false;
bool forked_child = false;
hvd_topology last_topology = HVD_TOPOLOGY_INIT;

volatile std::sig_atomic_t preempted = 0;  // 1: a SIGTERM has come; 2: and was reported

// A forked child, such as a worker of a data loader, ends as without.
void on_sigterm(int, siginfo_t* sent, void*) {
  if (preempted == 0 && !forked_child && sent->si_pid != getppid()) {
    preempted = 1;
    return;
  }
  signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
}

void note_fork() { forked_child = forked_child || started; }

// In an elastic job that has no place for this process any more, Python's way to end with exit code 0 is raised.
template <typename Init>
void join(const Init& init) {
  refuse_in_forked_child();
  hvd_status joined = HVD_OK;
  check_released([&] {
    joined = init();
    return joined == HVD_SHUT_DOWN ? HVD_OK : joined;
  });
  if (joined == HVD_SHUT_DOWN) {
    PyErr_SetObject(PyExc_SystemExit, py::int_(0).ptr());
    throw py::error_already_set();
  }
  check(hvd_get_topology(&last_topology));
  started = true;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// If the function fails, because the epoch is over, so does the operation that has let this process join.
void call_joined(void*) {
  const py::gil_scoped_acquire gil;
  try {
    joined_from_standby();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("joining the job from standby");
  }
}

class IgnoredInterrupts {
 public:
  IgnoredInterrupts() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGINT, &ignore, &previous_);
    if (PyErr_CheckSignals() != 0) PyErr_Clear();
  }
  ~IgnoredInterrupts() { sigaction(SIGINT, &previous_, nullptr); }
  IgnoredInterrupts(const IgnoredInterrupts&) = delete;
  IgnoredInterrupts& operator=(const IgnoredInterrupts&) = delete;

 private:
  struct sigaction previous_ {};
};

// A Python function that hvd calls without the GIL.
struct Broadcast {
  const py::function& function;
  int rank = 0;
  std::exception_ptr raised;

  hvd_status call(void* bytes, std::size_t length) {
    const py::gil_scoped_acquire gil;
    try {
      py::object own = py::none();
      if (rank == 0) own = py::bytes(static_cast<const char*>(bytes), length);
      const auto result = py::cast<std::string>(function(own));
      if (result.size() != length) throw py::value_error("the broadcast has changed its length");
      std::memcpy(bytes, result.data(), length);
      return HVD_OK;
    } catch (...) {
      raised = std::current_exception();
      return HVD_INTERNAL;
    }
  }
};

}  // namespace

void import_exceptions() {
  py::object error = py::module_::import("hvd.exceptions").attr("HorovodInternalError");
  internal_error = error.release().ptr();
}

void check(hvd_status status) {
  if (status == HVD_OK) return;
  const bool wrong_call = status == HVD_INVALID_ARGUMENT || status == HVD_NOT_INITIALIZED;
  PyErr_SetString(wrong_call ? PyExc_ValueError : internal_error, hvd_last_error());
  const py::error_already_set error;
  if (status == HVD_MISMATCH) error.value().attr("is_mismatch") = true;
  throw error;
}

// When the interpreter finalizes, it ends daemon threads that take the GIL again by unwinding their stacks. A
// destructor may not let that pass, and other destructors would run without the GIL. Such a thread blocks here until
// the process ends, as it does from CPython 3.14 on.
GilRelease::~GilRelease() {
  try {
    PyEval_RestoreThread(state_);
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

void watch_forks() {
  if (pthread_atfork(nullptr, nullptr, note_fork) != 0) throw std::bad_alloc();
}

bool in_forked_child() { return forked_child; }

void refuse_in_forked_child() {
  if (!forked_child) return;
  throw py::value_error(
      "this process was forked from one in which hvd was initialized, and cannot take part in collectives; call hvd in "
      "the parent, or start this process with the spawn method");
}

void init() {
  join([] { return hvd_init(); });
}

void init_standby(const py::function& joined) {
  if (!joined_from_standby.is(joined)) joined_from_standby = joined.inc_ref();  // the same in each epoch
  join([] { return hvd_init_standby(call_joined, nullptr); });
}

void init_with(int rank, int size, int local_size, const py::function& broadcast) {
  Broadcast by_python{broadcast, rank, nullptr};
  hvd_rendezvous rendezvous = HVD_RENDEZVOUS_INIT;
  rendezvous.rank = rank;
  rendezvous.size = size;
  rendezvous.local_size = local_size;
  rendezvous.context = &by_python;
  rendezvous.broadcast = [](void* context, void* bytes, std::size_t length) {
    return static_cast<Broadcast*>(context)->call(bytes, length);
  };
  try {
    join([&] { return hvd_init_with(&rendezvous); });
  } catch (...) {
    if (by_python.raised) std::rethrow_exception(by_python.raised);
    throw;
  }
}

py::tuple launch() {
  hvd_launch found = HVD_LAUNCH_INIT;
  check(hvd_get_launch(&found));
  return py::make_tuple(found.launcher, found.rank, found.size, found.local_size);
}

py::tuple epoch() {
  hvd_epoch found = HVD_EPOCH_INIT;
  check_released([&] { return hvd_get_epoch(&found); });
  return py::make_tuple(found.number, found.has_newcomers != 0, found.change, found.starting);
}

bool stands_by() {
  if (hvd_is_initialized() == 0) return false;
  hvd_epoch found = HVD_EPOCH_INIT;
  check(hvd_get_epoch(&found));
  return found.stands_by != 0;
}

void report_synchronized() {
  check_released([] { return hvd_report_synchronized(); });
}

void watch_preemption() {
  struct sigaction action {};
  action.sa_sigaction = on_sigterm;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

void report_leaving() {
  check_released([] { return hvd_report_preempted(); });
}

void report_preemption() {
  if (preempted != 1) return;
  preempted = 2;
  report_leaving();
}

void shutdown() {
  if (forked_child) return;
  check_released([] { return hvd_shutdown(); });
  started = false;
  release_finished_works();
}

void fail(const std::string& cause) {
  if (forked_child) return;
  check_released([&] { return hvd_fail(cause.c_str()); });
}

py::object call_uninterrupted(const py::function& function, const py::args& arguments) {
  const IgnoredInterrupts ignored;
  return function(*arguments);
}

bool is_initialized() { return forked_child ? started : hvd_is_initialized() != 0; }

hvd_topology topology() {
  if (forked_child) return last_topology;
  check(hvd_get_topology(&last_topology));
  return last_topology;
}

}  // namespace hvd::python
