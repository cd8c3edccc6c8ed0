// What a locked schedule performs in one go: a stage is a bucket, or several in a row if they have tensors of one
// operation, of which all or nothing is to be done.
//
// Pure; the same on every rank, as plan_buckets().
#pragma once

#include <cstdint>
#include <vector>

#include "core/fusion/bucket.h"
#include "core/negotiation/response.h"

namespace hvd {

using Stage = std::vector<Bucket>;

// Plans the buckets of each group of responses, in their order, and puts them into stages. Each response is in one.
std::vector<Stage> plan_stages(const std::vector<std::vector<const Response*>>& groups, std::int64_t threshold_bytes);

// The responses with tensors in the stage, each once.
std::vector<const Response*> responses_of(const Stage& stage);

}  // namespace hvd
