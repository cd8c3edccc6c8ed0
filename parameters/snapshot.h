// The state of shards in files, one for each: "shard-0-of-2.hvdps" in a folder of the user's.
#pragma once

#include <sys/types.h>

#include <string>

#include "parameters/shard.h"

namespace hvd {

// Starts to write the shard's state as of now, and returns the process that does it: a child, which shares the memory
// until one of them changes it. Its exit code is 0 when the file is complete, on disk, and in the place of an earlier
// one; else an errno value. Throws Unsupported if there can be no child.
pid_t start_snapshot(const Shard& shard, const std::string& folder);

// Adds what the folder's snapshots have of this shard, by however many servers they were written. Throws
// InvalidArgument, which names the file, if there are none, or one of them is incomplete or malformed.
void restore_snapshot(Shard& shard, const std::string& folder);

bool has_snapshot(const std::string& folder);

}  // namespace hvd
