// How an asynchronous kernel tells TensorFlow that it is through.
//
// The C API hands a kernel the address of a std::function<void()> that is a parameter of TensorFlow's own function, and
// gone when the kernel's returns: TF_RunAsyncOpKernelDoneCallback() can only be called before that (tensorflow/c/
// kernels.cc, COpKernel's ComputeAsync). So it is copied on entry, and the copy called. That takes libstdc++'s
// std::function on both sides, whose layout has not changed since GCC 5 and does not depend on its ABI switch;
// find_c_api() refuses a TensorFlow built with another library. A copy, not a move: should a later TensorFlow own what
// it hands out, a move would break it. Intel's plugin for TensorFlow does the same.
#pragma once

#include <functional>

#include "bindings/tensorflow/c_api.h"

namespace hvd::tf {

using Done = std::function<void()>;

inline Done copied(AsyncDoneCallback* callback) { return *reinterpret_cast<const Done*>(callback); }

}  // namespace hvd::tf
