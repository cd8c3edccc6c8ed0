#include "core/execution/executor.h"

#include "core/base/error.h"
#include "core/execution/backend_selector.h"
#include "core/execution/call_builder.h"

namespace hvd {

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
  metrics_.bytes.add(bytes_of(call.total_elements(), call.dtype));
  return {};
}

void Executor::run(const Bucket& bucket, const ProcessSet& set, PendingTable& pending) {
  Status status;
  {
    TimelineRows rows(timeline_, bucket, pending);
    // A barrier is over once all ranks have asked for it.
    if (bucket.request().collective != Collective::barrier) {
      CollectiveCall call = build_call(bucket, set, set.rank_of(rank_).value(), pending);
      call.sequence = ++sequences_[set.id];
      status = run(call, rows);
    }
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
}

}  // namespace hvd
