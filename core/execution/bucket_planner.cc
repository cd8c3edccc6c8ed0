#include "core/execution/bucket_planner.h"

#include <algorithm>

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
  const Request& a = x.request;
  const Request& b = y.request;
  return a.process_set == b.process_set && a.op == b.op && a.prescale == b.prescale && a.postscale == b.postscale &&
         a.device == b.device && x.contributing == y.contributing;
}

class Planner {
 public:
  explicit Planner(std::int64_t threshold) : threshold_(threshold) {}

  void add_alone(const Response* response, std::size_t tensor) { plan_.push_back({{{response, tensor}}}); }

  void add_fused(const Response* response, std::size_t tensor) {
    const TensorSpec& spec = response->request.tensors[tensor];
    const std::int64_t bytes = bytes_of(spec);
    if (threshold_ <= 0 || bytes > threshold_) return add_alone(response, tensor);
    const auto open = std::find_if(open_.begin(), open_.end(), [&](const OpenBucket& bucket) {
      return bucket.dtype == spec.dtype && same_kind(plan_[bucket.index].response(), *response);
    });
    if (open != open_.end() && bytes <= threshold_ - open->bytes) {
      plan_[open->index].items.push_back({response, tensor});
      open->bytes += bytes;
      return;
    }
    if (open != open_.end()) {
      open_.erase(open);
    } else if (open_.size() == kMaxOpenBuckets) {
      open_.erase(open_.begin());
    }
    open_.push_back({plan_.size(), spec.dtype, bytes});
    add_alone(response, tensor);
  }

  std::vector<Bucket> take() { return std::move(plan_); }

 private:
  std::int64_t threshold_;
  std::vector<Bucket> plan_;
  std::vector<OpenBucket> open_;  // in the order in which they were opened
};

}  // namespace

std::vector<Bucket> plan_buckets(const std::vector<const Response*>& executes, std::int64_t threshold_bytes) {
  Planner planner(threshold_bytes);
  for (const Response* response : executes) {
    const Request& request = response->request;
    if (request.collective == Collective::barrier) planner.add_alone(response, 0);
    for (std::size_t tensor = 0; tensor < request.tensors.size(); ++tensor) {
      if (request.collective == Collective::allreduce) {
        planner.add_fused(response, tensor);
      } else {
        planner.add_alone(response, tensor);
      }
    }
  }
  return planner.take();
}

}  // namespace hvd
