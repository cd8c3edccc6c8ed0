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

std::string operation_activity(const Request& request) {
  if (request.collective == Collective::allreduce && request.op == ReduceOp::adasum) return "ADASUM";
  return in_capitals(collective_name(request.collective));
}

std::string negotiation_activity(const Request& request) { return "NEGOTIATE_" + operation_activity(request); }

std::string backend_activity(const std::string& backend, const Request& request) {
  if (backend != "mpi" && backend != "nccl") return backend;
  const bool broadcasts = request.collective == Collective::broadcast;
  return in_capitals(backend) + "_" + (broadcasts ? "BCAST" : operation_activity(request));
}

TimelineRows::TimelineRows(Timeline& timeline, const Bucket& bucket) : timeline_(timeline) {
  if (!timeline.active()) return;
  for (const Bucket::Item& item : bucket.items) {
    const Request& request = item.response->request;
    if (!requests_.empty() && requests_.back() == &request) continue;  // the next tensor of a grouped operation
    requests_.push_back(&request);
    // Tensors of a grouped operation may be in several buckets.
    const bool first = item.own != nullptr && item.own->tensors_left == item.own->spec.tensors.size();
    if (first) timeline.end(request.name);
    timeline.begin(request.name, operation_activity(request));
  }
}

TimelineRows::~TimelineRows() {
  if (in_activity_) end();
  for (const Request* request : requests_) {
    if (request->tensors.empty()) {
      timeline_.end(request->name);
    } else {
      const TensorSpec& spec = request->tensors.front();
      timeline_.end(request->name, dtype_name(spec.dtype), to_string(spec.shape));
    }
  }
}

void TimelineRows::begin(const std::string& backend) {
  in_activity_ = true;
  for (const Request* request : requests_) timeline_.begin(request->name, backend_activity(backend, *request));
}

void TimelineRows::end() {
  in_activity_ = false;
  for (const Request* request : requests_) timeline_.end(request->name);
}

}  // namespace hvd
