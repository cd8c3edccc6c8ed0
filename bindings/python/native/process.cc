#include "bindings/python/native/process.h"

#include <pthread.h>
#include <pybind11/pybind11.h>

#include "bindings/python/native/status.h"
#include "bindings/python/native/work.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// Written by init() and shutdown() under the GIL, and by the child of a fork() while it has one thread.
bool started = false;
bool forked_child = false;
hvd_topology last_topology = HVD_TOPOLOGY_INIT;

void note_fork() { forked_child = forked_child || started; }

}  // namespace

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
  refuse_in_forked_child();
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = hvd_init();
  }
  check(status);
  check(hvd_get_topology(&last_topology));
  started = true;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void shutdown() {
  if (forked_child) return;
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = hvd_shutdown();
  }
  check(status);
  started = false;
  release_finished_works();
}

bool is_initialized() { return forked_child ? started : hvd_is_initialized() != 0; }

hvd_topology topology() {
  if (forked_child) return last_topology;
  hvd_topology now = HVD_TOPOLOGY_INIT;
  check(hvd_get_topology(&now));
  return now;
}

}  // namespace hvd::python
