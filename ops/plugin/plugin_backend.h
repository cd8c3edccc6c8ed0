// The backend and the transport over a plugin's communicator, and the thread for calls of a plugin that may not return.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/bootstrap/topology.h"
#include "core/execution/backend.h"
#include "ops/plugin/plugin.h"
#include "ops/transport/transport.h"

namespace hvd {

// A thread for calls that may never return: into libraries without deadlines. The caller stops waiting at the deadline,
// or soon after the job was aborted; the thread is then abandoned.
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

// The backend for a plugin's communicator. The plugin runs calls on a separate thread, one per communicator, so that
// one that never returns blocks no other thread: the job then ends with a Timeout, after `timeout`. The plugin's other
// functions, which must not wait, are called on the thread that drives the engine. `others`: the backends to which the
// plugin may delegate calls; they outlive this one.
std::unique_ptr<Backend> make_plugin_backend(std::shared_ptr<PluginCommunicator> communicator,
                                             std::vector<Backend*> others, const WaitPolicy& policy,
                                             const AbortFlag& abort, Duration timeout);

// A transport over a plugin's messages, for hvd's own algorithms, so that a network which only the plugin supports also
// serves the two-level forms. References outlive it.
std::shared_ptr<Transport> make_plugin_transport(std::shared_ptr<PluginCommunicator> communicator,
                                                 const Topology& topology, const WaitPolicy& policy,
                                                 const AbortFlag& abort);

}  // namespace hvd
