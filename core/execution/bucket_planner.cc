#include "core/execution/bucket_planner.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace hvd {
namespace {

// Buckets that may still take tensors. A step has one or two kinds (say float32 and bfloat16); beyond this many the
// one opened first is closed, so that planning stays linear.
constexpr std::size_t kMaxOpenBuckets = 8;

struct OpenBucket {
  std::size_t index;  // in the plan
  DType dtype;
  std::int64_t bytes;
};

std::int64_t bytes_of(const TensorSpec& tensor) {
  return elements_of(tensor.shape) * static_cast<std::int64_t>(size_of(tensor.dtype));
}

bool same_kind(const Response& x, const Response& y) {
  const OperationSpec& a = x.spec;
  const OperationSpec& b = y.spec;
  return a.process_set == b.process_set && a.op == b.op && a.prescale == b.prescale && a.postscale == b.postscale &&
         a.device == b.device && x.contributing == y.contributing;
}

class Planner {
 public:
  explicit Planner(std::int64_t threshold) : threshold_(threshold) {}

  void add_alone(const ReadyOperation& operation, std::size_t tensor) {
    plan_.push_back({{{operation.response, tensor, operation.own}}});
  }

  void add_fused(const ReadyOperation& operation, std::size_t tensor) {
    const TensorSpec& spec = operation.response->spec.tensors[tensor];
    const std::int64_t bytes = bytes_of(spec);
    if (threshold_ <= 0 || bytes > threshold_) return add_alone(operation, tensor);
    const auto open = std::find_if(open_.begin(), open_.end(), [&](const OpenBucket& bucket) {
      return bucket.dtype == spec.dtype && same_kind(plan_[bucket.index].response(), *operation.response);
    });
    if (open != open_.end() && bytes <= threshold_ - open->bytes) {
      plan_[open->index].items.push_back({operation.response, tensor, operation.own});
      open->bytes += bytes;
      return;
    }
    if (open != open_.end()) {
      open_.erase(open);
    } else if (open_.size() == kMaxOpenBuckets) {
      open_.erase(open_.begin());
    }
    open_.push_back({plan_.size(), spec.dtype, bytes});
    add_alone(operation, tensor);
  }

  std::vector<Bucket> take() { return std::move(plan_); }

 private:
  std::int64_t threshold_;
  std::vector<Bucket> plan_;
  std::vector<OpenBucket> open_;  // in the order in which they were opened
};

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

std::vector<Bucket> plan_buckets(const std::vector<ReadyOperation>& operations, std::int64_t threshold_bytes) {
  Planner planner(threshold_bytes);
  for (const ReadyOperation& operation : operations) {
    const OperationSpec& spec = operation.response->spec;
    if (spec.collective == Collective::barrier) planner.add_alone(operation, 0);
    for (std::size_t tensor = 0; tensor < spec.tensors.size(); ++tensor) {
      if (spec.collective == Collective::allreduce) {
        planner.add_fused(operation, tensor);
      } else {
        planner.add_alone(operation, tensor);
      }
    }
  }
  return planner.take();
}

std::vector<Bucket> plan_buckets(const std::vector<const Response*>& responses, std::int64_t threshold_bytes) {
  std::vector<ReadyOperation> operations;
  operations.reserve(responses.size());
  for (const Response* response : responses) operations.push_back({.response = response});
  return plan_buckets(operations, threshold_bytes);
}

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
