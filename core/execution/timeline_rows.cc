#include "core/execution/timeline_rows.h"

#include <cctype>

#include "core/operation/operation.h"

namespace hvd {

namespace {

std::string in_capitals(std::string name) {
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

}  // namespace

std::string operation_activity(const OperationSpec& spec) {
  if (spec.collective == Collective::allreduce && spec.op == ReduceOp::adasum) return "ADASUM";
  return in_capitals(collective_name(spec.collective));
}

std::string negotiation_activity(const OperationSpec& spec) { return "NEGOTIATE_" + operation_activity(spec); }

std::string backend_activity(const std::string& backend, const OperationSpec& spec) {
  if (backend != "mpi" && backend != "nccl") return backend;
  const bool broadcasts = spec.collective == Collective::broadcast;
  return in_capitals(backend) + "_" + (broadcasts ? "BCAST" : operation_activity(spec));
}

TimelineRows::TimelineRows(Timeline& timeline, const Bucket& bucket) : timeline_(timeline) {
  if (!timeline.active()) return;
  for (const Bucket::Item& item : bucket.items) {
    const OperationSpec& spec = item.response->spec;
    if (!specs_.empty() && specs_.back() == &spec) continue;  // the next tensor of a grouped operation
    specs_.push_back(&spec);
    // Tensors of a grouped operation may be in several buckets.
    const bool first = item.own != nullptr && item.own->tensors_left == item.own->spec.tensors.size();
    if (first) timeline.end(spec.name);
    timeline.begin(spec.name, operation_activity(spec));
  }
}

TimelineRows::~TimelineRows() {
  if (in_activity_) end();
  for (const OperationSpec* spec : specs_) {
    if (spec->tensors.empty()) {
      timeline_.end(spec->name);
    } else {
      const TensorSpec& tensor = spec->tensors.front();
      timeline_.end(spec->name, dtype_name(tensor.dtype), to_string(tensor.shape));
    }
  }
}

void TimelineRows::begin(const std::string& backend) {
  in_activity_ = true;
  for (const OperationSpec* spec : specs_) timeline_.begin(spec->name, backend_activity(backend, *spec));
}

void TimelineRows::end() {
  in_activity_ = false;
  for (const OperationSpec* spec : specs_) timeline_.end(spec->name);
}

}  // namespace hvd
