// What each rank tells the others before they make a communicator: which NCCL it has, or why it has none. All must have
// the same version; where they do not, NCCL itself would fail late, and say so on some ranks only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/execution/backend.h"
#include "ops/nccl/nccl_abi.h"

namespace hvd::nccl {

// As it travels. Texts end with a zero, and are cut to fit.
struct Introduction {
  std::int32_t version = 0;  // 0: there is none
  UniqueId id{};             // rank 0's, for the communicator
  std::int32_t kernels = 0;  // 1: it can pack and scale
  char text[504]{};          // the library's description, or what is missing

  void say(const std::string& what);
  std::string said() const;
};

// Through `host`, a backend for the CPU's memory, as part of `about`: ranks of its set call together. What each said,
// by rank. Throws what the backend throws.
std::vector<Introduction> introduce(Backend& host, const CollectiveCall& about, const Introduction& own);

// Ok if a communicator can be made; else Unsupported or Mismatch, the same on every rank. Pure.
Status verdict_on(const std::vector<Introduction>& ranks, const std::function<std::string(int)>& describe_rank);

}  // namespace hvd::nccl
