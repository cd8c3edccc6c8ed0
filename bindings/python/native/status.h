// Statuses of the C interface as Python exceptions: a wrong call is a ValueError, everything else that can go wrong is
// hvd.exceptions.HorovodInternalError, which elastic training catches. To be called with the GIL.
#pragma once

#include "hvd.h"

namespace hvd::python {

// Called once, when the module is loaded. The exception's class is written in Python.
void import_exceptions();

// Nothing if the status is HVD_OK. Otherwise throws with the text of hvd_last_error(): no call of hvd may come between.
void check(hvd_status status);

}  // namespace hvd::python
