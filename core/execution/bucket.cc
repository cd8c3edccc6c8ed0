#include "core/execution/bucket.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"

namespace hvd {

const Response& Bucket::response() const { return *items.front().response; }

const OperationSpec& Bucket::spec() const { return response().spec; }

// ---- Planning

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

  void add_alone(const Bucket::Item& operation, std::size_t tensor) {
    plan_.push_back({{{operation.response, operation.own, tensor}}});
  }

  void add_fused(const Bucket::Item& operation, std::size_t tensor) {
    const TensorSpec& spec = operation.response->spec.tensors[tensor];
    const std::int64_t bytes = bytes_of(spec);
    if (threshold_ <= 0 || bytes > threshold_) return add_alone(operation, tensor);
    const auto open = std::find_if(open_.begin(), open_.end(), [&](const OpenBucket& bucket) {
      return bucket.dtype == spec.dtype && same_kind(plan_[bucket.index].response(), *operation.response);
    });
    if (open != open_.end() && bytes <= threshold_ - open->bytes) {
      plan_[open->index].items.push_back({operation.response, operation.own, tensor});
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

std::vector<Bucket> plan_buckets(const std::vector<Bucket::Item>& operations, std::int64_t threshold_bytes) {
  Planner planner(threshold_bytes);
  for (const Bucket::Item& operation : operations) {
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
  std::vector<Bucket::Item> operations;
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

// ---- Calls

namespace {

// The coordinator has compared all ranks' requests; this protects the memory of this rank from a response that does not
// match its operation.
void check_fits(const Operation& own, const Response& response, std::size_t tensor, int position) {
  const OperationSpec& agreed = response.spec;
  const auto refuse = [&] {
    throw Internal("the coordinator's response for '" + agreed.name + "' does not fit this rank's request");
  };
  if (own.spec.tensors.size() != agreed.tensors.size()) refuse();
  const TensorSpec& mine = own.spec.tensors[tensor];
  const TensorSpec& theirs = agreed.tensors[tensor];
  bool fits = own.spec.collective == agreed.collective && mine.dtype == theirs.dtype &&
              mine.shape.size() == theirs.shape.size();
  const auto at = static_cast<std::size_t>(position);
  if (agreed.collective == Collective::allgather) {
    fits = fits && response.rows[tensor][at] == mine.shape[0] &&
           row_elements_of(mine.shape) == row_elements_of(theirs.shape);
  } else if (agreed.collective == Collective::alltoall) {
    fits = fits && response.rows[at] == own.spec.splits && row_elements_of(mine.shape) == row_elements_of(theirs.shape);
  } else {
    fits = fits && mine.shape == theirs.shape;
  }
  if (!fits) refuse();
}

// A rank without the operation contributes no rows, and has no memory for those of others.
void check_absent(const Response& response, std::size_t tensor, const ProcessSet& set, int position) {
  const auto at = static_cast<std::size_t>(position);
  bool fits = true;
  switch (response.spec.collective) {
    case Collective::broadcast: fits = response.spec.root != set.ranks[at]; break;
    case Collective::allgather: fits = response.rows[tensor][at] == 0; break;
    case Collective::alltoall:
      for (std::size_t rank = 0; rank < response.rows.size(); ++rank) {
        fits = fits && response.rows[rank][at] == 0 && response.rows[at][rank] == 0;
      }
      break;
    default: break;
  }
  if (fits) return;
  throw Internal("the coordinator's response for '" + response.spec.name + "' needs this rank, which has joined");
}

// allgather and alltoall have rows by rank, whose dimensions must match the set's size. A broadcast's root is in the
// set. No more ranks take part than it has.
void check_ranks(const Response& response, const ProcessSet& set) {
  const auto size = static_cast<std::size_t>(set.size());
  const Collective collective = response.spec.collective;
  std::size_t expected = 0;
  if (collective == Collective::allgather) expected = response.spec.tensors.size();
  if (collective == Collective::alltoall) expected = size;
  bool right = response.rows.size() == expected;
  for (const auto& rows : response.rows) right = right && rows.size() == size;
  if (!right) throw Internal("the coordinator's response for '" + response.spec.name + "' has a wrong number of rows");
  if (collective == Collective::broadcast && !set.rank_of(response.spec.root)) {
    throw Internal("the coordinator's response for '" + response.spec.name + "' has root rank " +
                   std::to_string(response.spec.root) + " of " + std::to_string(set.size()) + " ranks");
  }
  if (response.contributing > set.size() || response.contributing < 1) {
    throw Internal("the coordinator's response for '" + response.spec.name + "' is for " +
                   std::to_string(response.contributing) + " of " + std::to_string(set.size()) + " ranks");
  }
}

std::vector<std::int64_t> scaled(std::vector<std::int64_t> rows, std::int64_t row_elements) {
  for (std::int64_t& count : rows) count *= row_elements;
  return rows;
}

// Also for a rank without the operation.
std::int64_t input_elements(const Response& response, std::size_t tensor, const Operation* own) {
  const OperationSpec& agreed = response.spec;
  if (own != nullptr) return elements_of(own->spec.tensors[tensor].shape);
  return differs_by_rank(agreed.collective) ? 0 : elements_of(agreed.tensors[tensor].shape);
}

// The job ends: the other ranks need this rank for the collective.
OwnedTensor allocate_on_cpu(const OperationSpec& spec, DType dtype, const Shape& shape) {
  try {
    return OwnedTensor::allocate(dtype, shape);
  } catch (const std::bad_alloc&) {
    throw Internal(std::string(collective_name(spec.collective)) + " '" + spec.name +
                   "': there is no memory for the result " + dtype_name(dtype) + to_string(shape));
  }
}

void* allocate_output(Operation& own, std::size_t tensor, const TensorSpec& spec, std::int64_t rows,
                      DeviceRuntime* devices) {
  auto& outputs = own.memory.outputs;
  if (outputs.empty()) outputs.resize(own.memory.tensors.size());
  Shape shape = spec.shape;
  shape[0] = rows;
  OwnedTensor& output = outputs[tensor];
  if (own.memory.device == kCpuDevice) {
    output = allocate_on_cpu(own.spec, spec.dtype, shape);
  } else {
    if (devices == nullptr) throw Internal("a result on a device, but no DeviceRuntime");
    auto memory = devices->allocate(own.memory.device, bytes_of(elements_of(shape), spec.dtype));
    output = {.memory = nullptr,
              .dtype = spec.dtype,
              .shape = std::move(shape),
              .device = own.memory.device,
              .on_device = std::move(memory)};
  }
  return output.data();
}

// Rows of this rank's output where they differ from the input's.
std::int64_t output_rows(const Response& response, std::size_t tensor, int position,
                         const std::vector<std::int64_t>& scatter_rows) {
  const auto at = static_cast<std::size_t>(position);
  switch (response.spec.collective) {
    case Collective::allgather:
      return std::accumulate(response.rows[tensor].begin(), response.rows[tensor].end(), std::int64_t{0});
    case Collective::alltoall: {
      std::int64_t rows = 0;
      for (const auto& from : response.rows) rows += from[at];
      return rows;
    }
    default: return scatter_rows[at];
  }
}

// As in the user's `tensor * factor`: the factor of a type that is computed in float32 is a float32.
double factor_for(DType dtype, double factor) {
  return accumulator_of(dtype) == DType::float32 ? static_cast<double>(static_cast<float>(factor)) : factor;
}

// The divisor of an average is not rounded to float32: with 1/41 rounded, an average of ones would be less than one.
CollectiveCall call_without_pieces(const Bucket& bucket, const ProcessSet& set, JoinDivisor divisor) {
  const OperationSpec& agreed = bucket.spec();
  CollectiveCall call;
  call.collective = agreed.collective;
  call.op = agreed.op;
  if (!agreed.tensors.empty()) {  // a barrier has none
    call.dtype = agreed.tensors[bucket.items.front().tensor].dtype;
    call.prescale = factor_for(call.dtype, agreed.prescale);
    call.postscale = factor_for(call.dtype, agreed.postscale);
  }
  call.set = &set;
  call.device = agreed.device;
  if (call.op == ReduceOp::average) {
    call.op = ReduceOp::sum;
    call.postscale /= divisor == JoinDivisor::all ? set.size() : bucket.response().contributing;
  }
  if (agreed.collective == Collective::broadcast) call.root = set.rank_of(agreed.root).value();
  return call;
}

}  // namespace

CollectiveCall build_call(const Bucket& bucket, const ProcessSet& set, int position, JoinDivisor divisor,
                          DeviceRuntime* devices) {
  for (const Bucket::Item& item : bucket.items) check_ranks(*item.response, set);
  CollectiveCall call = call_without_pieces(bucket, set, divisor);
  if (call.collective == Collective::barrier) return call;
  call.pieces.reserve(bucket.items.size());
  for (const Bucket::Item& item : bucket.items) {
    Operation* const own = item.own;
    const Response& response = *item.response;
    const TensorSpec& spec = response.spec.tensors[item.tensor];
    if (own != nullptr) {
      check_fits(*own, response, item.tensor, position);
    } else {
      check_absent(response, item.tensor, set, position);
    }

    std::vector<std::int64_t> scatter_rows;
    if (call.collective == Collective::allgather) {
      call.counts.push_back(scaled(response.rows[item.tensor], row_elements_of(spec.shape)));
    } else if (call.collective == Collective::alltoall) {
      for (const auto& rows : response.rows) call.counts.push_back(scaled(rows, row_elements_of(spec.shape)));
    } else if (call.collective == Collective::reducescatter) {
      scatter_rows = even_split(spec.shape[0], set.size());
      call.counts.push_back(scaled(scatter_rows, row_elements_of(spec.shape)));
    }

    Piece piece{.elements = input_elements(response, item.tensor, own)};
    if (own != nullptr) {
      const TensorMemory& memory = own->memory.tensors[item.tensor];
      piece.input = memory.input;
      const auto rows = [&] { return output_rows(response, item.tensor, position, scatter_rows); };
      const bool fits = !differs_by_rank(call.collective) || memory.output_rows == rows();
      piece.output = !own->memory.allocates_outputs && fits ? memory.output
                                                            : allocate_output(*own, item.tensor, spec, rows(), devices);
      piece.ready = own->memory.ready.get();
      call.ordinal = own->memory.device;
    }
    if (own != nullptr && call.collective == Collective::alltoall) {
      for (const auto& rows : response.rows)
        own->completion.received_splits.push_back(rows[static_cast<std::size_t>(position)]);
    }
    call.pieces.push_back(piece);
  }
  return call;
}

CollectiveCall build_call_without_memory(const Bucket& bucket, const ProcessSet& set, JoinDivisor divisor) {
  check_ranks(bucket.response(), set);
  CollectiveCall call = call_without_pieces(bucket, set, divisor);
  call.pieces = {{.elements = elements_of(bucket.spec().tensors.front().shape)}};
  return call;
}

}  // namespace hvd
