// Converts the arguments of users that the Python packages pass on. Done here because the errors of pybind11 list its
// overloads. Arguments of unusual types are converted or refused by hvd.arguments, which has the messages.
#pragma once

#include <pybind11/pybind11.h>

namespace hvd::python {

// Each throws the TypeError or ValueError of hvd.arguments.
int to_reduce_op(pybind11::handle op);
int to_rank(pybind11::handle rank, const char* argument);
double to_factor(pybind11::handle factor, const char* argument);

// Returns nullptr for None. Valid as long as the object.
const char* to_name(pybind11::handle name);

}  // namespace hvd::python
