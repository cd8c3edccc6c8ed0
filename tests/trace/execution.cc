#include "tests/trace/execution.h"

#include <cstdlib>
#include <regex>
#include <utility>

#include "tests/trace/values.h"

namespace hvd::trace {

namespace {

// Without what differs from run to run: host names, process numbers, times.
std::string normalised(const std::string& text) {
  static const std::regex host(R"( on [^ ]+ \(pid \d+\))"), time(R"(\b[0-9.]+ (s|ms|us|seconds?)\b)");
  return std::regex_replace(std::regex_replace(text, host, ""), time, "TIME");
}

bool has_result_of_other_shape(int collective) {
  return collective == HVD_ALLGATHER || collective == HVD_ALLTOALL || collective == HVD_REDUCESCATTER;
}

}  // namespace

Outcome Outcome::of(hvd_status status) {
  Outcome outcome{.status = status};
  if (status != HVD_OK) outcome.text = normalised(hvd_last_error());
  return outcome;
}

void Hash::add(const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) value_ = (value_ ^ first[i]) * 0x100000001b3u;
}

Execution::Execution(Operation operation, int rank) : operation_(std::move(operation)) {
  const bool local_outputs = !has_result_of_other_shape(operation_.collective) && !operation_.tensors.empty();
  for (std::size_t i = 0; i < operation_.tensors.size(); ++i) {
    const TensorSpec& spec = operation_.tensors[i];
    hvd_tensor tensor{nullptr, spec.shape.data(), static_cast<std::int32_t>(spec.shape.size()), spec.dtype, HVD_CPU, 0};
    tensor.data = memory_.emplace_back(allocate(spec.bytes())).get();
    fill(tensor.data, operation_, i, rank);
    inputs_.push_back(tensor);
    if (!local_outputs) continue;
    if (!operation_.in_place) {
      tensor.data = memory_.emplace_back(allocate(spec.bytes())).get();
      fill(tensor.data, operation_, i, rank);  // what stays there if the operation fails
    }
    outputs_.push_back(tensor);
  }
}

Execution::~Execution() {
  if (work_ != nullptr) hvd_work_free(work_);
}

Execution::Memory Execution::allocate(std::size_t bytes) const {
  if (!operation_.in_arena) return {std::malloc(bytes + 1), std::free};
  void* memory = nullptr;
  detail::check(hvd_alloc(bytes + 1, &memory));
  return {memory, hvd_free};
}

hvd_call Execution::call() {
  hvd_call call = HVD_CALL_INIT;
  call.collective = operation_.collective;
  call.process_set = operation_.process_set;
  call.name = operation_.name.empty() ? nullptr : operation_.name.c_str();
  call.reduce_op = operation_.reduce_op;
  call.root_rank = operation_.root;
  call.prescale = operation_.prescale;
  call.postscale = operation_.postscale;
  call.count = inputs_.size();
  call.inputs = inputs_.empty() ? nullptr : inputs_.data();
  call.outputs = outputs_.empty() ? nullptr : outputs_.data();
  call.splits = operation_.splits.empty() ? nullptr : operation_.splits.data();
  call.splits_count = operation_.splits.size();
  call.priority = operation_.priority;
  return call;
}

void Execution::submit() {
  const hvd_call wanted = call();
  started_ = Outcome::of(hvd_submit(&wanted, &work_));
}

void Execution::run() {
  const hvd_call wanted = call();
  started_ = Outcome::of(hvd_run(&wanted, -1, &work_));
}

Outcome Execution::poll() const { return Outcome::of(hvd_work_wait(work_, 0)); }

Outcome Execution::finish() {
  Outcome outcome = started_;
  if (outcome.status == HVD_OK && work_ != nullptr) outcome = Outcome::of(hvd_work_wait(work_, -1));
  if (outcome.status == HVD_OK && operation_.collective == HVD_JOIN) {
    detail::check(hvd_work_last_joined(work_, &outcome.last_joined));
  }
  hash_outputs(outcome);
  return outcome;
}

// Where the operation failed: the outputs as they were before.
void Execution::hash_outputs(Outcome& outcome) const {
  Hash hash;
  for (const hvd_tensor& output : outputs_) hash_tensor(hash, output);
  const bool has_results = outcome.status == HVD_OK && has_result_of_other_shape(operation_.collective);
  for (std::size_t i = 0; has_results && i < inputs_.size(); ++i) {
    hvd_tensor output{};
    detail::check(hvd_work_output(work_, i, &output));
    hash_tensor(hash, output);
  }
  if (has_results && operation_.collective == HVD_ALLTOALL) {
    const std::int64_t* splits = nullptr;
    std::size_t count = 0;
    detail::check(hvd_work_received_splits(work_, &splits, &count));
    hash.add(splits, count * sizeof(std::int64_t));
  }
  outcome.hash = hash.value();
}

void Execution::hash_tensor(Hash& hash, const hvd_tensor& tensor) const {
  const TensorSpec spec{tensor.dtype, {tensor.shape, tensor.shape + tensor.dimensions}};
  hash.add(spec.shape.data(), spec.shape.size() * sizeof(std::int64_t));
  hash.add(tensor.data, spec.bytes());
}

}  // namespace hvd::trace
