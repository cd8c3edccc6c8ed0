// The communicator of a topology's ranks in a plugin: opened once, for both its backend and its transport.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/bootstrap/topology.h"
#include "ops/plugin/plugin_library.h"

namespace hvd {

class PluginCommunicator {
 public:
  // All ranks of the topology must construct it together. Throws the plugin's error. References outlive this object.
  PluginCommunicator(std::shared_ptr<const PluginLibrary> library, const Topology& topology, const AbortFlag& abort,
                     const Log& log);
  ~PluginCommunicator();
  PluginCommunicator(const PluginCommunicator&) = delete;
  PluginCommunicator& operator=(const PluginCommunicator&) = delete;

  const PluginLibrary& library() const { return *library_; }
  void* opened() const { return opened_; }
  int rank() const { return group_.rank; }
  int size() const { return group_.size; }
  bool has_transport() const { return library_->table().transport != nullptr; }

  // The function that performs calls which the plugin passes on while it runs a call. May throw. Null: none any more;
  // waits until a call in progress has ended.
  using HandOn = std::function<void(const hvd_plugin_call&)>;
  void set_hand_on(HandOn hand_on);

  // Performs a call with the plugin. Throws the error of the plugin or of the backend to which it passed the call on.
  void run(const hvd_plugin_call& call);

  // Some started operations have not ended: passed to the plugin when the group is closed.
  void set_failed() { failed_ = true; }
  // A call may stay in the plugin forever: the group, and this object, are never closed. Later requests of the plugin
  // to its host have no effect, because the host may no longer exist.
  static void abandon(std::shared_ptr<PluginCommunicator> group);

 private:
  hvd_status hand_on(const hvd_plugin_call& call) noexcept;
  void log(std::int32_t level, const char* text) const;
  bool is_stopped() const;

  const std::shared_ptr<const PluginLibrary> library_;
  const AbortFlag& abort_;
  const Log& log_;
  mutable std::mutex asking_host_;
  bool abandoned_ = false;  // guarded by asking_host_
  std::mutex handing_on_;
  HandOn hand_on_;    // guarded by handing_on_
  Status handed_on_;  // result of that in the current call
  bool failed_ = false;
  hvd_plugin_host host_{};
  std::vector<std::int32_t> job_ranks_;
  hvd_plugin_group group_{};
  void* opened_ = nullptr;
};

}  // namespace hvd
