// A named call with its tensors, on its way from the caller to the backend.
//
// Made on a framework thread, pushed through the SubmissionQueue, owned by the engine thread from then on. The memory
// behind the views belongs to the caller and stays valid until the work is done.
#pragma once

#include <memory>
#include <vector>

#include "core/collective/work.h"
#include "core/submission/flight_names.h"
#include "core/submission/request.h"
#include "core/tensor/tensor_view.h"

namespace hvd {

struct Submission {
  Request request;
  std::vector<TensorView> inputs;
  std::vector<TensorView> outputs;  // empty: the runtime allocates them
  std::shared_ptr<Work> work;
  NameToken name;
  std::size_t tensors_left = 0;  // engine thread: tensors of the group that no bucket has finished yet
};

}  // namespace hvd
