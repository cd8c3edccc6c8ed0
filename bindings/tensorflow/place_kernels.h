// The kernels that return rank and size of this process. Evaluated at run time: a saved graph may run in another job.
#pragma once

#include "bindings/tensorflow/c_api.h"

namespace hvd::tf {

enum class Place { rank, local_rank, size, local_size, included };

// For TF_NewKernelBuilder().
void* create_place_kernel(Place place, OpKernelConstruction* construction);
void run_place_kernel(void* kernel, OpKernelContext* context);
void delete_place_kernel(void* kernel);

template <Place kPlace>
void* create_place_kernel(OpKernelConstruction* construction) {
  return create_place_kernel(kPlace, construction);
}

}  // namespace hvd::tf
