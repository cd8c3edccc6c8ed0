// The information that ranks exchange before they create a communicator: their version of NCCL, or why they have none.
// All must have the same version; otherwise NCCL would fail late, and report it on some ranks only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/execution/backend.h"
#include "ops/nccl/nccl_abi.h"

namespace hvd::nccl {

// The transmitted form. Texts are zero-terminated, and truncated to fit.
struct Introduction {
  std::int32_t version = 0;  // 0: there is none
  UniqueId id{};             // rank 0's, for the communicator
  std::int32_t kernels = 0;  // 1: the rank can pack and scale
  char text[504]{};          // the library's description, or what is missing

  void say(const std::string& what);
  std::string said() const;
};

// Exchanges introductions through `host`, a CPU backend, as part of `about`: the ranks of its set call together.
// Returns them by rank. Throws the backend's errors.
std::vector<Introduction> introduce(Backend& host, const CollectiveCall& about, const Introduction& own);

// Returns ok if a communicator can be created; otherwise Unsupported or Mismatch, the same on every rank. Pure.
Status verdict_on(const std::vector<Introduction>& ranks, const std::function<std::string(int)>& describe_rank);

}  // namespace hvd::nccl
