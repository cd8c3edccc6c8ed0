// A plugin's shared library, opened and checked: the door through which backends come that libhvd.so does not contain.
// bindings/c/hvd_plugin.h is what a plugin has to have. Once open it stays so for the life of the process: threads and
// handlers of libraries such as MPI outlive whoever has opened them.
#pragma once

#include <string>
#include <vector>

#include "hvd_plugin.h"

namespace hvd {

class PluginLibrary {
 public:
  // Throws Unsupported whose text says why it cannot be used: no such file, a library that it needs is missing, it
  // knows another version of the table, functions are missing, or its self-test has failed.
  explicit PluginLibrary(const std::string& path);

  const hvd_plugin& table() const { return *table_; }
  const char* name() const { return table_->name; }
  const char* description() const { return table_->description != nullptr ? table_->description : ""; }

  // Throws the plugin's error, with its name, unless the status is good.
  void check(hvd_status status) const;

 private:
  std::string last_error() const;

  const hvd_plugin* table_ = nullptr;
};

// Paths from HVD_PLUGINS, which separates them by ':'. Pure.
std::vector<std::string> plugin_paths(const std::string& list);

// The folder in which hvd's own plugins lie: hvd/ beside the library or program that this code is in.
std::string installed_plugin_folder();

}  // namespace hvd
