// Waits for the ends of operations on GPUs.
//
// hvd calls back when such an operation is in a stream, and TensorFlow, whose streams the C API does not show, must not
// go on before it is over. So a thread of this library waits in between, for one after the other: what is in a stream
// here has been submitted by all ranks, and ends without anybody's being called. The thread is there as long as
// there is something to wait for; every operation ends, as hvd gives up those that do not, and all at hvd_shutdown().
#pragma once

#include <functional>

#include "hvd.h"

namespace hvd::tf {

// Calls `then` on that thread when the work is over, well or badly.
void when_over(hvd_work* work, std::function<void()> then);

}  // namespace hvd::tf
