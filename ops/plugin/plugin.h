// A plugin (include/hvd_plugin.h): its shared library, and the communicator of a topology's ranks in it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/status.h"
#include "core/bootstrap/topology.h"
#include "hvd_plugin.h"

namespace hvd {

// A plugin's shared library, opened and checked. Stays open until the process ends: threads and handlers of libraries
// such as MPI outlive this object.
class PluginLibrary {
 public:
  // Throws Unsupported with the reason: the file does not exist, a library that it needs is missing, it supports
  // another version of the table, functions are missing, or its self-test has failed.
  explicit PluginLibrary(const std::string& path);

  const hvd_plugin& table() const { return *table_; }
  const char* name() const { return table_->name; }
  const char* description() const { return table_->description != nullptr ? table_->description : ""; }

  // Throws the plugin's error, with its name, unless the status is HVD_OK.
  void check(hvd_status status) const;

 private:
  std::string last_error() const;

  const hvd_plugin* table_ = nullptr;
};

// The folder of hvd's own plugins: hvd/ beside the library or program that contains this code.
std::string installed_plugin_folder();

// The communicator of a topology's ranks in a plugin, shared by the plugin's backend and its transport.
class PluginCommunicator {
 public:
  // Opens the group; all ranks of the topology must call together. Throws the plugin's error; Timeout at the deadline,
  // also if the plugin never returns; the flag's reason soon after it is raised. References outlive the communicator.
  static std::shared_ptr<PluginCommunicator> open(std::shared_ptr<const PluginLibrary> library,
                                                  const Topology& topology, const AbortFlag& abort, const Log& log,
                                                  Deadline deadline);
  ~PluginCommunicator();
  PluginCommunicator(const PluginCommunicator&) = delete;
  PluginCommunicator& operator=(const PluginCommunicator&) = delete;

  const PluginLibrary& library() const { return *library_; }
  void* opened() const { return opened_; }
  int rank() const { return group_.rank; }
  int size() const { return group_.size; }
  bool has_transport() const { return library_->table().transport != nullptr; }

  // Sets the function that performs calls which the plugin delegates during run(). Null removes it, after a delegated
  // call in progress has returned. The function may throw.
  using DelegateCall = std::function<void(const hvd_plugin_call&)>;
  void set_delegate(DelegateCall delegate);

  // Performs a call with the plugin. Throws the plugin's error, or that of the backend to which it delegated the call.
  void run(const hvd_plugin_call& call);

  // Some started operations have not ended: passed to the plugin when the group is closed.
  void set_failed() { failed_ = true; }
  // For a group with a call that may never return: the group is never closed, and this object never deleted. Later
  // requests of the plugin to its host have no effect, because the host may no longer exist.
  static void abandon(std::shared_ptr<PluginCommunicator> communicator);

 private:
  PluginCommunicator(std::shared_ptr<const PluginLibrary> library, const Topology& topology, const AbortFlag& abort,
                     const Log& log);
  void open_group();

  hvd_status delegate(const hvd_plugin_call& call) noexcept;
  void log(std::int32_t level, const char* text) const;
  bool is_stopped() const;

  const std::shared_ptr<const PluginLibrary> library_;
  const AbortFlag& abort_;
  const Log& log_;
  mutable Mutex host_mutex_;
  bool abandoned_ GUARDED_BY(host_mutex_) = false;
  Mutex delegate_mutex_;
  DelegateCall delegate_ GUARDED_BY(delegate_mutex_);
  Status delegated_status_;  // result of delegate_ in the current call
  bool failed_ = false;
  hvd_plugin_host host_{};
  std::vector<std::int32_t> job_ranks_;
  hvd_plugin_group group_{};
  bool is_open_ = false;
  void* opened_ = nullptr;  // the plugin's group
};

}  // namespace hvd
