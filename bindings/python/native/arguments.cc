#include "bindings/python/native/arguments.h"

#include <cstring>
#include <limits>

#include "hvd.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// Whether the value is an int in this range: the usual case, other than mistakes and NumPy integers.
bool is_plain(py::handle value, long lowest, long highest, int& number) {
  if (!PyLong_CheckExact(value.ptr())) return false;
  int overflow = 0;
  const long converted = PyLong_AsLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0 || converted < lowest || converted > highest) return false;
  number = static_cast<int>(converted);
  return true;
}

template <typename... Arguments>
py::object ask(const char* function, Arguments... arguments) {
  return py::module_::import("hvd.arguments").attr(function)(arguments...);
}

}  // namespace

int to_reduce_op(py::handle op) {
  int number = 0;
  return is_plain(op, HVD_AVERAGE, HVD_PRODUCT, number) ? number : py::cast<int>(ask("reduce_op", op));
}

int to_rank(py::handle rank, const char* argument) {
  constexpr int kLowest = std::numeric_limits<int>::min(), kHighest = std::numeric_limits<int>::max();
  int number = 0;
  if (is_plain(rank, kLowest, kHighest, number)) return number;
  const py::object converted = ask("rank", rank, argument);
  if (is_plain(converted, kLowest, kHighest, number)) return number;
  throw py::value_error(std::string(argument) + " is " + py::cast<std::string>(py::str(converted)) +
                        ", which is no rank");
}

double to_factor(py::handle factor, const char* argument) {
  return PyFloat_CheckExact(factor.ptr()) ? PyFloat_AS_DOUBLE(factor.ptr())
                                          : py::cast<double>(ask("factor", factor, argument));
}

const char* to_name(py::handle name) {
  if (name.is_none()) return nullptr;
  if (PyUnicode_Check(name.ptr())) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
    if (text == nullptr) throw py::error_already_set();
    if (std::strlen(text) == static_cast<std::size_t>(size)) return text;
  }
  ask("operation_name", name);  // refuses it
  throw py::value_error("a name that cannot be used");
}

}  // namespace hvd::python
