// Results as DLPack capsules, through which every framework takes over memory without copying and without hvd being
// compiled against it. The capsules are those without a version ("dltensor"), which all of them read.
#pragma once

#include <pybind11/pybind11.h>

#include "hvd.h"

namespace hvd::python {

// Owns `tensor.data`, which came from hvd_work_take_output(). Whoever takes the capsule gives the memory back, on any
// thread and without the GIL; a capsule that nobody took does so when it is collected.
pybind11::capsule to_dlpack(const hvd_tensor& tensor);

}  // namespace hvd::python
