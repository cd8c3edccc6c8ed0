// The backend for a plugin's group. The plugin's functions are called on a separate thread, one per group, so that a
// library that never returns blocks no other thread: the job then ends with a Timeout.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/bootstrap/topology.h"
#include "core/execution/backend.h"
#include "ops/plugin/plugin_communicator.h"
#include "ops/plugin/watched_thread.h"

namespace hvd {

class PluginBackend final : public Backend {
 public:
  // `others`: the backends to which the plugin may pass calls on; they outlive this one. run() throws Timeout after
  // `timeout`.
  PluginBackend(std::shared_ptr<PluginCommunicator> group, std::vector<Backend*> others, const WaitPolicy& policy,
                const AbortFlag& abort, Duration timeout);
  ~PluginBackend() override;

  const char* name() const override { return group_->library().name(); }
  int score(const CollectiveCall& call) const override;
  void run(const CollectiveCall& call) override;

 private:
  void hand_on(const hvd_plugin_call& call) const;

  const std::shared_ptr<PluginCommunicator> group_;
  const std::vector<Backend*> others_;
  const AbortFlag& abort_;
  const Duration timeout_;
  const CollectiveCall* running_ = nullptr;
  WatchedThread thread_;
};

}  // namespace hvd
