#include "core/execution/executor.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/execution/backend_selector.h"
#include "core/execution/call_builder.h"

namespace hvd {

namespace {

std::uint32_t ticket_of(std::uint64_t sequence) { return static_cast<std::uint32_t>(sequence) & 0x7fffffff; }

}  // namespace

void complete_pending(PendingTable& pending, std::int32_t process_set, const std::string& name, const Status& status) {
  auto submission = pending.remove(process_set, name);
  if (!submission) return;
  const std::shared_ptr<Work> work = std::move(submission->work);
  submission.reset();  // lets go of the name before the caller hears
  work->complete(status);
}

Status Executor::run(const CollectiveCall& call, TimelineRows& rows) {
  const TimePoint started = Clock::now();
  try {
    Backend& backend = select_backend(backends_, call);
    rows.begin(backend.name());
    backend.run(call);
    rows.end();
  } catch (const Unsupported& error) {
    return error.status();
  }
  metrics_.collective_time.add(Clock::now() - started);
  metrics_.buckets.add();
  if (call.entry == Entry::asking) metrics_.locked_buckets.add();
  metrics_.bytes.add(bytes_of(call.total_elements(), call.dtype));
  return {};
}

bool Executor::run(const Bucket& bucket, const ProcessSet& set, PendingTable& pending, Entry entry) {
  Status status;
  try {
    TimelineRows rows(timeline_, bucket, pending);
    // A barrier that ranks have agreed on is over: all have asked for it.
    if (bucket.request().collective != Collective::barrier || entry == Entry::asking) {
      CollectiveCall call = build_call(bucket, set, set.rank_of(rank_).value(), pending, join_divisor_);
      std::uint64_t& sequence = sequences_[set.id];
      call.sequence = sequence + 1;
      call.entry = entry;
      call.ticket = ticket_of(call.sequence);
      status = run(call, rows);
      ++sequence;
    }
  } catch (const Declined&) {
    take_back(bucket, pending);
    return false;
  }
  for (const Bucket::Item& item : bucket.items) {
    const std::string& name = item.response->request.name;
    Submission* own = pending.find(set.id, name);
    if (own == nullptr) continue;
    const bool last = own->tensors_left <= 1;
    if (!status.ok() || last) {
      complete_pending(pending, set.id, name, status);
    } else {
      --own->tensors_left;
    }
  }
  return true;
}

// They are negotiated on again.
void Executor::take_back(const Bucket& bucket, const PendingTable& pending) {
  for (const Bucket::Item& item : bucket.items) {
    const Request& request = item.response->request;
    const Submission* own = pending.find(request.process_set, request.name);
    if (own == nullptr) continue;
    own->work->outputs.clear();
    own->work->received_splits.clear();
    if (timeline_.active()) timeline_.begin(request.name, negotiation_activity(request));
  }
}

PreparedCall Executor::prepare(const Bucket& bucket, const ProcessSet& set) const {
  const Request& request = bucket.request();
  const bool suits = bucket.items.size() == 1 && request.tensors.size() == 1 &&
                     (request.collective == Collective::allreduce || request.collective == Collective::broadcast);
  PreparedCall prepared;
  if (!suits) return prepared;
  // As if it had been submitted, with memory that is still to come.
  const TensorView view{.data = nullptr, .dtype = request.tensors[0].dtype, .shape = request.tensors[0].shape};
  PendingTable one(metrics_);
  one.insert({.request = request, .inputs = {view}, .outputs = {view}, .work = nullptr, .name = nullptr});
  prepared.call = build_call(bucket, set, set.rank_of(rank_).value(), one, join_divisor_);
  prepared.call.entry = Entry::asking;
  try {
    prepared.backend = &select_backend(backends_, prepared.call);
  } catch (const Unsupported&) {
    return {};
  }
  prepared.bytes = static_cast<std::int64_t>(bytes_of(prepared.call.total_elements(), prepared.call.dtype));
  prepared.request = &request;
  return prepared;
}

bool Executor::run(PreparedCall& prepared, const DirectCall& direct) {
  CollectiveCall& call = prepared.call;
  std::uint64_t& sequence = sequences_[call.set->id];
  call.pieces.front().input = direct.input;
  call.pieces.front().output = direct.output;
  call.sequence = sequence + 1;
  call.ticket = ticket_of(call.sequence);
  try {
    prepared.backend->run(call);
  } catch (const Declined&) {
    return false;
  }
  ++sequence;
  metrics_.direct_calls.add();
  metrics_.direct_bytes.add(static_cast<std::uint64_t>(prepared.bytes));
  return true;
}

bool Executor::can_be_asked(const ProcessSet& set) const {
  return std::all_of(backends_.begin(), backends_.end(),
                     [&](const auto& backend) { return backend->can_be_asked(set); });
}

void Executor::decline(const ProcessSet& set) {
  for (const auto& backend : backends_) backend->decline(set, ticket_of(sequences_[set.id] + 1));
}

void Executor::set_late_callback(Duration patience, const std::function<bool()>& late) {
  for (const auto& backend : backends_) backend->set_late_callback(patience, late);
}

}  // namespace hvd
