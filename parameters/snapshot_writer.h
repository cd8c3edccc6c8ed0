// A server's snapshots, one at a time: those at intervals, and those that workers ask for. A child process writes each
// (parameters/snapshot.h), while the server goes on. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "parameters/shard.h"
#include "parameters/snapshot.h"

namespace hvd {

class SnapshotWriter {
 public:
  // `folder` and `interval`: of those at intervals; empty or zero: there are none. `log` outlives this.
  SnapshotWriter(std::string folder, Duration interval, const Log& log);
  bool is_due(TimePoint now) const { return now >= next_; }
  // What is due, unless another one is being written.
  void write_due(const std::vector<const Shard*>& shards, TimePoint now);
  // At the server's end, and waits for it: the shards do not change any more.
  void write_last(const std::vector<const Shard*>& shards);
  // Takes note of a child that has ended.
  void reap();
  // When reap() or write_due() is to be called again.
  Deadline next_deadline() const;

  // For a worker: start() when it is free, end() once is_done().
  bool is_free() const { return !process_ && !failure_; }
  bool is_done() const { return failure_.has_value(); }
  // Throws Unsupported if there can be no child.
  void start(const Shard& shard, const std::string& folder);
  // Of what is done: empty, or why there is no snapshot.
  const std::string& failure() const { return *failure_; }
  void end() { failure_.reset(); }
  // The worker has gone: nobody will ask for the end.
  void abandon();

 private:
  void begin(const std::vector<const Shard*>& shards, const std::string& folder, bool is_asked_for);
  bool await_end(Deadline deadline);

  const std::string own_folder_;
  const Duration interval_;
  const Log& log_;
  Deadline next_ = Deadline::max();
  std::optional<SnapshotProcess> process_{};
  std::string folder_;                    // that it writes to
  bool is_asked_for_ = false;             // by a worker
  std::optional<std::string> failure_{};  // of what a worker has asked for, once it has ended
};

}  // namespace hvd
