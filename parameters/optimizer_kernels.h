// The loops of the optimizers, once for each instruction set, each as a table of functions. Internal to optimizer.cc.
//
// Includes nothing of the project: what is compiled for a newer processor must not emit inline functions that the
// linker could substitute for those compiled for an older one.
#pragma once

#include <cstddef>

namespace hvd {

// What one step of a row depends on besides its gradient: an OptimizerSpec, and for Adam the corrections of this step.
struct OptimizerStep {
  float learning_rate, momentum, weight_decay, beta1, beta2, epsilon, beta, l1, l2;
  bool nesterov;
  float step, root;
};

struct OptimizerKernels {
  using Loop = void (*)(const OptimizerStep& step, float* row, float* state, const float* gradient, std::size_t width);

  void (*add)(float* sum, const float* values, std::size_t count);
  Loop sgd, momentum, adagrad, adagrad_row, adam, adam_row, ftrl;
};

extern const OptimizerKernels kOptimizerScalar;
#if HVD_KERNELS_X86
extern const OptimizerKernels kOptimizerAvx2;
#endif

}  // namespace hvd
