// Whose child this process is.
#pragma once

namespace hvd {

// Whether `pid`, as this process sees it, has started this process, itself or through others that still live.
bool is_started_by(int pid);

}  // namespace hvd
