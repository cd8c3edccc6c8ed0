// What users have given, on its way through Python's packages: converted here and not by pybind11, whose errors list
// its overloads. What is not plainly right is converted or refused by hvd.arguments, which has the texts.
#pragma once

#include <pybind11/pybind11.h>

namespace hvd::python {

// Each throws the TypeError or ValueError that hvd.arguments raises.
int to_reduce_op(pybind11::handle op);
int to_rank(pybind11::handle rank, const char* argument);
double to_factor(pybind11::handle factor, const char* argument);

// None: nullptr. Valid as long as the object.
const char* to_name(pybind11::handle name);

}  // namespace hvd::python
