// Waits for the end of operations on GPUs.
//
// hvd calls back when such an operation is enqueued in a stream, and TensorFlow, whose streams the C API does not
// expose, must not continue before it has ended. A thread of this library therefore waits in between, for one operation
// after the other: an operation in a stream was submitted by all ranks, and ends without further calls. The thread
// exists while there are operations to wait for; every operation ends, because hvd aborts those that do not, and all at
// hvd_shutdown().
#pragma once

#include <functional>

#include "hvd.h"

namespace hvd::tf {

// Calls `then` on that thread when the operation has ended, successfully or not.
void when_over(hvd_work* work, std::function<void()> then);

}  // namespace hvd::tf
