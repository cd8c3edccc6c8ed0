// A thread for calls that may never return: into libraries without deadlines. The caller stops waiting at the deadline,
// or soon after the job was aborted; the thread is then abandoned.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/futex.h"

namespace hvd {

class WatchedThread {
 public:
  // `policy`: how run() waits before it sleeps.
  WatchedThread(std::string_view name, const WaitPolicy& policy);
  // Joins the thread, unless it is lost.
  ~WatchedThread();
  WatchedThread(const WatchedThread&) = delete;
  WatchedThread& operator=(const WatchedThread&) = delete;

  // Runs `work` on the thread and returns when it has ended. Throws its exception; Timeout with `what` at the deadline;
  // the flag's reason when it is raised and the call has not ended soon after. After the last two the thread is lost,
  // and objects that `work` refers to stay in use forever. One caller at a time; not after a loss.
  void run(const std::function<void()>& work, Deadline deadline, const AbortFlag& abort, const std::string& what);

  bool lost() const { return lost_; }

 private:
  struct Shared;
  static void serve(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;  // shared with the thread, which may outlive this object
  bool lost_ = false;
};

}  // namespace hvd
