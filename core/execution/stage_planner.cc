#include "core/execution/stage_planner.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "core/execution/bucket_planner.h"

namespace hvd {

namespace {

// For each response the last bucket that has a tensor of it.
std::unordered_map<const Response*, std::size_t> last_buckets(const std::vector<Bucket>& buckets) {
  std::unordered_map<const Response*, std::size_t> last;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    for (const Bucket::Item& item : buckets[i].items) last[item.response] = i;
  }
  return last;
}

void append_stages(std::vector<Bucket> buckets, std::vector<Stage>& stages) {
  const auto last = last_buckets(buckets);
  std::size_t end = 0;  // of the stage
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (i >= end) stages.emplace_back();
    for (const Bucket::Item& item : buckets[i].items) end = std::max(end, last.at(item.response) + 1);
    stages.back().push_back(std::move(buckets[i]));
  }
}

}  // namespace

std::vector<Stage> plan_stages(const std::vector<std::vector<const Response*>>& groups, std::int64_t threshold_bytes) {
  std::vector<Stage> stages;
  for (const auto& responses : groups) append_stages(plan_buckets(responses, threshold_bytes), stages);
  return stages;
}

std::vector<const Response*> responses_of(const Stage& stage) {
  std::vector<const Response*> responses;
  for (const Bucket& bucket : stage) {
    for (const Bucket::Item& item : bucket.items) responses.push_back(item.response);
  }
  std::sort(responses.begin(), responses.end());
  responses.erase(std::unique(responses.begin(), responses.end()), responses.end());
  return responses;
}

}  // namespace hvd
