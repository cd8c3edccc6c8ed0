// The state of shards in files, one for each: "shard-0-of-2.hvdps" in a folder of the user's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/net/socket.h"
#include "parameters/shard.h"

namespace hvd {

// The process that writes the shards' states as of its start: a child, which shares the memory until one of them
// changes it.
class SnapshotProcess {
 public:
  // Throws Unsupported if there can be no child.
  SnapshotProcess(const std::vector<const Shard*>& shards, const std::string& folder);
  ~SnapshotProcess();  // ends it
  SnapshotProcess(const SnapshotProcess&) = delete;
  SnapshotProcess& operator=(const SnapshotProcess&) = delete;

  static constexpr int kKilled = -1;
  // Empty while it writes. Then 0 if the files are complete, on disk, and in the place of earlier ones; else an errno
  // value, or kKilled.
  std::optional<int> result();

 private:
  pid_t child_ = -1;
  FileDescriptor said_;  // to which it writes its result: a process that ignores SIGCHLD gets no exit code
  std::optional<int> result_{};
};

// Adds what the folder's snapshots have of this shard, by however many servers they were written. Throws
// InvalidArgument, which names the file, if there are none, or not one of each server, or one is incomplete or
// malformed.
void restore_snapshot(Shard& shard, const std::string& folder);

// The same of this very shard's file alone. False, and nothing has happened, if there is none of this job.
bool restore_own_snapshot(Shard& shard, const std::string& folder);

}  // namespace hvd
