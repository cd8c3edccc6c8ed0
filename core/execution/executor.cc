#include "core/execution/executor.h"

#include <algorithm>

#include "core/base/error.h"

namespace hvd {

namespace {

// Reading the CPU time is a system call: one call in so many is measured and represents the others. A prime number: the
// length of repeating steps is seldom a multiple of it.
constexpr unsigned kCpuMeasured = 67;

Duration cost_of_measuring() {
  Duration least = Duration::max();
  for (int i = 0; i < 10; ++i) {
    const Duration started = thread_cpu_time();
    least = std::min(least, thread_cpu_time() - started);
  }
  return least;
}

void mark_performing(const Bucket& bucket) {
  const std::int64_t now = flight_time();
  for (const Bucket::Item& item : bucket.items) {
    if (item.own != nullptr) item.own->flight.performing(now);
  }
}

Bucket without(const std::vector<const Response*>& failed, const Bucket& bucket) {
  Bucket rest = bucket;
  std::erase_if(rest.items,
                [&](const Bucket::Item& item) { return std::ranges::find(failed, item.response) != failed.end(); });
  return rest;
}

// How an operation of which everything has been performed ends.
Status outcome_of(const Operation& own) {
  if (!own.memory.output_did_not_fit()) return {};
  std::size_t i = 0;
  while (own.memory.outputs[i].shape.empty()) ++i;
  return Status(StatusCode::invalid_argument,
                std::string(collective_name(own.spec.collective)) + " '" + own.spec.name + "': output " +
                    std::to_string(i) + " has " + std::to_string(own.memory.tensors[i].output_rows) +
                    " rows, but the result " + std::to_string(own.memory.outputs[i].shape.front()) +
                    ": that output is unchanged");
}

std::uint32_t call_id_of(std::uint64_t sequence) { return static_cast<std::uint32_t>(sequence) & 0x7fffffff; }

}  // namespace

// Records a bucket's operations in the timeline: they are performed from the construction to the end of the scope.
// Allocates nothing while no timeline is written.
class TimelineRows {
 public:
  // Ends the negotiation of the operations that this rank has submitted, and begins all operations.
  TimelineRows(Timeline& timeline, const Bucket& bucket) : timeline_(timeline) {
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
  ~TimelineRows() {
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
  TimelineRows(const TimelineRows&) = delete;
  TimelineRows& operator=(const TimelineRows&) = delete;

  // The backend's part of the operations.
  void begin(const std::string& backend) {
    in_activity_ = true;
    for (const OperationSpec* spec : specs_) timeline_.begin(spec->name, backend_activity(backend, *spec));
  }
  void end() {
    in_activity_ = false;
    for (const OperationSpec* spec : specs_) timeline_.end(spec->name);
  }

 private:
  Timeline& timeline_;
  std::vector<const OperationSpec*> specs_;  // of each operation that has a row
  bool in_activity_ = false;
};

Executor::Executor(std::vector<std::unique_ptr<Backend>> backends, const ProcessSet& set, int rank,
                   const Config& config, Metrics& metrics, Timeline& timeline, std::shared_ptr<DeviceRuntime> devices)
    : backends_(std::move(backends)),
      set_(set),
      rank_(rank),
      join_divisor_(config.negotiation.join_divisor),
      metrics_(metrics),
      timeline_(timeline),
      devices_(std::move(devices)),
      cost_of_measuring_(cost_of_measuring()) {}

Status Executor::run(const CollectiveCall& call, TimelineRows& rows) {
  const TimePoint started = Clock::now();
  try {
    Backend& backend = select_backend(backends_, call);
    rows.begin(backend.name());
    run_on(backend, call);
    enqueued_ = backend.enqueued();
    rows.end();
  } catch (const Unsupported& error) {
    return error.status();
  } catch (const Mismatch& error) {
    return error.status();
  }
  metrics_.collective_time.add(Clock::now() - started);
  metrics_.buckets.add();
  if (call.entry == EntryMode::asking) metrics_.locked_buckets.add();
  metrics_.bytes.add(bytes_of(call.total_elements(), call.dtype));
  return {};
}

void Executor::run_on(Backend& backend, const CollectiveCall& call) {
  if (++calls_ % kCpuMeasured != 0) return backend.run(call);
  const Duration started = thread_cpu_time();
  backend.run(call);
  const Duration spent = thread_cpu_time() - started - cost_of_measuring_;
  metrics_.collective_cpu.add(std::max(spent, Duration::zero()) * kCpuMeasured);
}

bool Executor::run(std::span<Bucket> buckets, PendingOperations& pending, DrivingThread driving_thread,
                   EntryMode first) {
  std::vector<const Response*> failed;
  EntryMode entry = first;
  for (Bucket& bucket : buckets) {
    Status status;
    if (failed.empty()) {
      if (!run(bucket, pending, driving_thread, entry, status)) return false;
    } else if (Bucket rest = without(failed, bucket); !rest.items.empty()) {
      run(rest, pending, driving_thread, entry, status);
    }
    if (!status.ok()) {
      for (const Bucket::Item& item : bucket.items) failed.push_back(item.response);
    }
    for (Bucket::Item& item : bucket.items) item.own = nullptr;
    entry = EntryMode::negotiated;
  }
  return true;
}

bool Executor::run(Bucket& bucket, PendingOperations& pending, DrivingThread driving_thread, EntryMode entry,
                   Status& status) {
  mark_performing(bucket);
  enqueued_.reset();
  try {
    TimelineRows rows(timeline_, bucket);
    // A negotiated barrier needs no data: all ranks have asked for it.
    if (bucket.spec().collective != Collective::barrier || entry == EntryMode::asking) {
      CollectiveCall call = build_call(bucket, set_, rank_, join_divisor_, devices_.get());
      call.sequence = sequence_ + 1;
      call.entry = entry;
      call.call_id = call_id_of(call.sequence);
      call.driving_thread = driving_thread;
      status = run(call, rows);
      ++sequence_;
    }
  } catch (const Declined&) {
    revert(bucket);
    return false;
  }
  complete(bucket, pending, status);
  return true;
}

// The operations will be negotiated again.
void Executor::revert(const Bucket& bucket) {
  for (const Bucket::Item& item : bucket.items) {
    Operation* const own = item.own;
    if (own == nullptr) continue;
    own->memory.outputs.clear();
    own->completion.received_splits.clear();
    own->completion.on_device.reset();
    own->flight.waits_again();
    if (timeline_.active()) timeline_.begin(own->spec.name, negotiation_activity(own->spec));
  }
}

// Ends the operations of which no tensor is left, or which have failed. Sleepers are woken when all are done: a thread
// that waits for one usually waits for the next one, too. The tensors of a grouped operation are adjacent.
void Executor::complete(Bucket& bucket, PendingOperations& pending, const Status& status) {
  to_wake_.reserve(bucket.items.size());  // no allocation between the end of an operation and waking its caller
  for (std::size_t i = 0; i < bucket.items.size(); ++i) {
    Operation* const own = bucket.items[i].own;
    if (own == nullptr) continue;
    if (own->tensors_left > 0) --own->tensors_left;
    // Of a grouped operation's buckets the one enqueued last ends last: a backend uses one stream.
    if (enqueued_) own->completion.on_device = enqueued_;
    const bool last_here = i + 1 == bucket.items.size() || bucket.items[i + 1].own != own;
    if (!last_here || (status.ok() && own->tensors_left > 0)) continue;
    EngineReference ended = pending.remove(*own);
    if (ended->end(status.ok() ? outcome_of(*own) : status)) to_wake_.push_back(std::move(ended));
  }
  for (const EngineReference& operation : to_wake_) operation->completion.wake();
  to_wake_.clear();
}

DirectCall Executor::make_direct(const Bucket& bucket) const {
  const OperationSpec& spec = bucket.spec();
  DirectCall direct;
  if (bucket.items.size() != 1 || !is_repeatable(spec)) return direct;
  direct.call = build_call_without_memory(bucket, set_, join_divisor_);
  direct.call.entry = EntryMode::asking;
  try {
    direct.backend = &select_backend(backends_, direct.call);
  } catch (const Unsupported&) {
    return {};
  }
  direct.bytes = static_cast<std::int64_t>(bytes_of(direct.call.total_elements(), direct.call.dtype));
  direct.spec = &spec;
  direct.described = describe(spec);
  direct.slot = bucket.items.front().response->slot;
  return direct;
}

void Executor::fill_in(DirectCall& direct, const TensorMemory& memory) const {
  CollectiveCall& call = direct.call;
  call.pieces.front().input = memory.input;
  call.pieces.front().output = memory.output;
  call.sequence = sequence_ + 1;
  call.call_id = call_id_of(call.sequence);
  call.driving_thread = DrivingThread::caller;
}

bool Executor::perform_counted(DirectCall& direct, void (Backend::*perform)(const CollectiveCall&)) {
  try {
    (direct.backend->*perform)(direct.call);
  } catch (const Declined&) {
    return false;
  } catch (...) {
    count_direct(0);  // as on every rank; what else is broken after other errors does not matter
    throw;
  }
  count_direct(static_cast<std::uint64_t>(direct.bytes));
  return true;
}

void Executor::count_direct(std::uint64_t bytes) {
  ++sequence_;
  if (set_.id == kGlobalProcessSet) {
    metrics_.direct_calls.add_alone();
    metrics_.direct_bytes.add_alone(bytes);
    return;
  }
  for (Counter* counter : {&metrics_.operations, &metrics_.buckets, &metrics_.locked_buckets}) counter->add();
  metrics_.bytes.add(bytes);
}

bool Executor::run(DirectCall& direct, const TensorMemory& memory) {
  fill_in(direct, memory);
  return perform_counted(direct, &Backend::run);
}

bool Executor::post(DirectCall& direct, const TensorMemory& memory) {
  fill_in(direct, memory);
  return direct.backend->post(direct.call);
}

bool Executor::wait_posted(DirectCall& direct, DrivingThread driving_thread) {
  direct.call.driving_thread = driving_thread;
  return perform_counted(direct, &Backend::wait_posted);
}

Deadline Executor::watch(TimePoint now) {
  Deadline next = Deadline::max();
  for (const auto& backend : backends_) next = std::min(next, backend->watch(now));
  return next;
}

void Executor::give_up(const Status& reason) noexcept {
  for (const auto& backend : backends_) backend->give_up(reason);
}

bool Executor::can_be_asked() const {
  return !backends_.empty() && std::all_of(backends_.begin(), backends_.end(),
                                           [this](const auto& backend) { return backend->can_be_asked(set_); });
}

void Executor::decline() { backends_.front()->decline(set_, call_id_of(sequence_ + 1)); }

void Executor::tune(const Knobs& knobs) {
  for (const auto& backend : backends_) backend->tune(knobs);
}

void Executor::set_late_callback(Duration timeout, const std::function<bool()>& late) {
  for (const auto& backend : backends_) backend->set_late_callback(timeout, late);
}

}  // namespace hvd
