#include "bindings/python/native/status.h"

#include <pybind11/pybind11.h>

namespace hvd::python {

namespace {

// Never released: a thread may still raise during interpreter shutdown.
PyObject* internal_error = nullptr;

}  // namespace

void import_exceptions() {
  pybind11::object error = pybind11::module_::import("hvd.exceptions").attr("HorovodInternalError");
  internal_error = error.release().ptr();
}

void check(hvd_status status) {
  if (status == HVD_OK) return;
  const bool wrong_call = status == HVD_INVALID_ARGUMENT || status == HVD_NOT_INITIALIZED;
  PyErr_SetString(wrong_call ? PyExc_ValueError : internal_error, hvd_last_error());
  throw pybind11::error_already_set();
}

}  // namespace hvd::python
