// Converts statuses of the C interface to Python exceptions: an invalid call is a ValueError, every other failure is
// hvd.exceptions.HorovodInternalError, which elastic training catches. Requires the GIL.
#pragma once

#include "hvd.h"

namespace hvd::python {

// Called once, when the module is loaded. The exception class is defined in Python.
void import_exceptions();

// Does nothing if the status is HVD_OK. Otherwise throws with the text of hvd_last_error(): no other hvd call may
// precede it.
void check(hvd_status status);

}  // namespace hvd::python
