// Plans the stages of a locked schedule: a stage is a bucket, or several consecutive ones if they have tensors of one
// operation, which is performed entirely or not at all.
//
// Pure; the same on every rank, like plan_buckets().
#pragma once

#include <cstdint>
#include <vector>

#include "core/control/protocol/response.h"
#include "core/execution/bucket.h"

namespace hvd {

using Stage = std::vector<Bucket>;

// Plans the buckets of each group of responses, in their order, and arranges them in stages. Each response is in one.
std::vector<Stage> plan_stages(const std::vector<std::vector<const Response*>>& groups, std::int64_t threshold_bytes);

// The responses with tensors in the stage, each once.
std::vector<const Response*> responses_of(const Stage& stage);

}  // namespace hvd
