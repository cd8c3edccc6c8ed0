// A thread for calls that may never return: into libraries that know no deadline. Whoever waits for a call stops
// waiting at the deadline, or soon after the job was given up; the thread is then left to itself.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/wait_policy.h"

namespace hvd {

class WatchedThread {
 public:
  // `policy`: how run() waits before it sleeps.
  WatchedThread(std::string_view name, const WaitPolicy& policy);
  // Waits for the thread, unless it is lost.
  ~WatchedThread();
  WatchedThread(const WatchedThread&) = delete;
  WatchedThread& operator=(const WatchedThread&) = delete;

  // Has the thread do it, and returns when it is done. Throws what it has thrown; Timeout with `what` at the deadline;
  // the flag's reason when it was raised and the call has not ended soon after. The last two lose the thread: what
  // `work` refers to is then in use for ever. One caller at a time; not after a loss.
  void run(const std::function<void()>& work, Deadline deadline, const AbortFlag& abort, const std::string& what);

  bool lost() const { return lost_; }

 private:
  struct Shared;
  static void serve(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;  // the thread has it too: it may outlive this object
  bool lost_ = false;
};

}  // namespace hvd
