// The ranks of a topology in a plugin: opened once, for its backend and its transport alike.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/rendezvous/topology.h"
#include "ops/plugin/plugin_library.h"

namespace hvd {

class PluginCommunicator {
 public:
  // All ranks of the topology construct together. Throws the plugin's error. References outlive this object.
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

  // Who performs what the plugin hands on, while it runs a call.
  // May throw; null: nobody any more. Waits for one that is under way.
  using HandOn = std::function<void(const hvd_plugin_call&)>;
  void set_hand_on(HandOn hand_on);

  // Has the plugin perform a call. Throws its error, or that of whoever has performed it for the plugin.
  void run(const hvd_plugin_call& call);

  // Not all that was begun has ended: the plugin is told when the group is closed.
  void set_failed() { failed_ = true; }
  // A call is still in the plugin, and may be for ever: the group, and this object, are never closed. What it asks its
  // host for from here on is in vain, for the host may be gone.
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
  Status handed_on_;  // how that has ended, in the call under way
  bool failed_ = false;
  hvd_plugin_host host_{};
  std::vector<std::int32_t> job_ranks_;
  hvd_plugin_group group_{};
  void* opened_ = nullptr;
};

}  // namespace hvd
