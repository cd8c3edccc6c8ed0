// Selects the backend for a call: the one with the highest score, the earlier one among equals. Pure: scores read only
// what is the same on every rank, so all ranks choose alike.
#pragma once

#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/execution/backend.h"
#include "core/tensor/tensor.h"

namespace hvd {

// `backends`: a range of pointers of any kind.
template <typename Backends>
Backend& select_backend(const Backends& backends, const CollectiveCall& call) {
  Backend* best = nullptr;
  int best_score = 0;
  for (const auto& backend : backends) {
    const int score = backend->score(call);
    if (score > best_score) {
      best = &*backend;
      best_score = score;
    }
  }
  if (best == nullptr) {
    throw Unsupported("no backend can do " + std::string(collective_name(call.collective)) + " (" +
                      reduce_op_name(call.op) + ") of " + dtype_name(call.dtype) +
                      (call.device == kCpuDevice ? "" : " on an accelerator"));
  }
  return *best;
}

}  // namespace hvd
