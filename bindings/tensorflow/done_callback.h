// The completion callback of an asynchronous kernel.
//
// The C API passes a kernel the address of a std::function<void()> that is a parameter of TensorFlow's own function,
// and destroyed when the kernel's function returns: TF_RunAsyncOpKernelDoneCallback() can only be called before that
// (tensorflow/c/kernels.cc, COpKernel's ComputeAsync). Therefore it is copied on entry, and the copy is called. That
// requires libstdc++'s std::function on both sides, whose layout has not changed since GCC 5 and does not depend on its
// ABI switch; find_c_api() refuses a TensorFlow built with another library. It is copied, not moved, because a later
// TensorFlow might still use the object. Intel's plugin for TensorFlow does the same.
#pragma once

#include <functional>

#include "bindings/tensorflow/c_api.h"

namespace hvd::tf {

using Done = std::function<void()>;

inline Done copied(AsyncDoneCallback* callback) { return *reinterpret_cast<const Done*>(callback); }

}  // namespace hvd::tf
