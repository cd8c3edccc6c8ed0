// Converts results to DLPack capsules, through which every framework takes over memory without a copy, while hvd is not
// compiled against it. The capsules are the unversioned ones ("dltensor"), which all frameworks read.
#pragma once

#include <pybind11/pybind11.h>

#include "hvd.h"

namespace hvd::python {

// The capsule owns `tensor.data`, which came from hvd_work_take_output(). The consumer of the capsule frees the memory,
// on any thread and without the GIL; a capsule without a consumer frees it when it is garbage collected.
pybind11::capsule to_dlpack(const hvd_tensor& tensor);

}  // namespace hvd::python
