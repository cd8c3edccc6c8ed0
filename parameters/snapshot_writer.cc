#include "parameters/snapshot_writer.h"

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "core/base/error.h"
#include "parameters/snapshot.h"

namespace hvd {

namespace {

constexpr Duration kReapInterval = std::chrono::milliseconds(10);

// Empty: it has written everything.
std::string failure_of(pid_t ended, int status) {
  if (ended < 0) return error_text(errno);
  if (WIFSIGNALED(status)) return "its process was killed by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : error_text(WEXITSTATUS(status));
}

}  // namespace

SnapshotWriter::SnapshotWriter(std::string folder, Duration interval, const Log& log)
    : own_folder_(std::move(folder)), interval_(interval), log_(log) {
  if (interval > Duration::zero() && !own_folder_.empty()) next_ = deadline_after(interval);
}

SnapshotWriter::~SnapshotWriter() {
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

void SnapshotWriter::begin(const std::vector<const Shard*>& shards, const std::string& folder, bool is_asked_for) {
  child_ = start_snapshot(shards, folder);
  folder_ = folder;
  is_asked_for_ = is_asked_for;
}

void SnapshotWriter::write_due(const std::vector<const Shard*>& shards, TimePoint now) {
  next_ = now + interval_;
  if (!is_free() || shards.empty()) return;
  try {
    begin(shards, own_folder_, false);
  } catch (const Unsupported& error) {
    log_.error(error.what());
  }
}

void SnapshotWriter::start(const Shard& shard, const std::string& folder) { begin({&shard}, folder, true); }

void SnapshotWriter::reap() {
  if (child_ < 0) return;
  int status = 0;
  const pid_t ended = waitpid(child_, &status, WNOHANG);
  if (ended == 0) return;
  child_ = -1;
  std::string failure = failure_of(ended, status);
  if (!failure.empty()) failure = "the snapshot in " + folder_ + " has failed: " + failure;
  if (is_asked_for_) {
    failure_ = std::move(failure);
  } else if (!failure.empty()) {
    log_.error(failure);
  }
}

Deadline SnapshotWriter::next_deadline() const {
  return child_ < 0 ? next_ : std::min(next_, deadline_after(kReapInterval));
}

void SnapshotWriter::abandon() {
  failure_.reset();
  is_asked_for_ = false;
}

}  // namespace hvd
