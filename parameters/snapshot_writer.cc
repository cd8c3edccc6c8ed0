#include "parameters/snapshot_writer.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr Duration kReapInterval = std::chrono::milliseconds(10);
constexpr Duration kLastTime = std::chrono::seconds(20);  // a preempted host is often gone 30 s after its notice

}  // namespace

SnapshotWriter::SnapshotWriter(std::string folder, Duration interval, const Log& log)
    : own_folder_(std::move(folder)), interval_(interval), log_(log) {
  if (interval > Duration::zero() && !own_folder_.empty()) next_ = deadline_after(interval);
}

void SnapshotWriter::begin(const std::vector<const Shard*>& shards, const std::string& folder, bool is_asked_for) {
  process_.emplace(shards, folder);
  folder_ = folder;
  is_asked_for_ = is_asked_for;
}

void SnapshotWriter::write_due(const std::vector<const Shard*>& shards, TimePoint now) {
  next_ = now + interval_;
  if (!is_free() || shards.empty()) return;
  try {
    begin(shards, own_folder_, false);
  } catch (const Unsupported& error) {
    process_.reset();
    log_.error(error.what());
  }
}

void SnapshotWriter::write_last(const std::vector<const Shard*>& shards) {
  if (own_folder_.empty() || shards.empty()) return;
  const Deadline deadline = deadline_after(kLastTime);
  const bool is_alone = await_end(deadline);  // one that was begun earlier writes the same files
  failure_.reset();
  if (is_alone) write_due(shards, Clock::now());
  if (!is_alone || !await_end(deadline)) log_.error("ends without a last snapshot: one takes more than 20 s");
}

bool SnapshotWriter::await_end(Deadline deadline) {
  for (; process_ && Clock::now() < deadline; reap()) std::this_thread::sleep_for(kReapInterval);
  return !process_;
}

void SnapshotWriter::start(const Shard& shard, const std::string& folder) { begin({&shard}, folder, true); }

void SnapshotWriter::reap() {
  const std::optional<int> result = process_ ? process_->result() : std::nullopt;
  if (!result) return;
  process_.reset();
  std::string failure;
  if (*result != 0) {
    const bool is_killed = *result == SnapshotProcess::kKilled;
    failure =
        "the snapshot in " + folder_ + " has failed: " + (is_killed ? "its process was killed" : error_text(*result));
  }
  if (is_asked_for_) {
    failure_ = std::move(failure);
  } else if (!failure.empty()) {
    log_.error(failure);
  }
}

Deadline SnapshotWriter::next_deadline() const {
  return !process_ ? next_ : std::min(next_, deadline_after(kReapInterval));
}

void SnapshotWriter::abandon() {
  failure_.reset();
  is_asked_for_ = false;
}

}  // namespace hvd
