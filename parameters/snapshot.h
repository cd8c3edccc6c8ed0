// The state of shards in files, one for each: "shard-0-of-2.hvdps" in a folder of the user's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "parameters/shard.h"

namespace hvd {

// Starts to write the shards' states as of now, and returns the process that does it: a child, which shares the memory
// until one of them changes it. Its exit code is 0 when the files are complete, on disk, and in the place of earlier
// ones; else an errno value. Throws Unsupported if there can be no child.
pid_t start_snapshot(const std::vector<const Shard*>& shards, const std::string& folder);

// Adds what the folder's snapshots have of this shard, by however many servers they were written. Throws
// InvalidArgument, which names the file, if there are none, or not one of each server, or one is incomplete or
// malformed.
void restore_snapshot(Shard& shard, const std::string& folder);

// The same of this very shard's file alone. False, and nothing has happened, if there is none of this job.
bool restore_own_snapshot(Shard& shard, const std::string& folder);

}  // namespace hvd
