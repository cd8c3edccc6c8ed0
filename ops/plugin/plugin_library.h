// A plugin's shared library, opened and checked. include/hvd_plugin.h defines what a plugin must export. Stays open
// until the process ends: threads and handlers of libraries such as MPI outlive this object.
#pragma once

#include <string>
#include <vector>

#include "hvd_plugin.h"

namespace hvd {

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

// Splits HVD_PLUGINS into paths, which are separated by ':'. Pure.
std::vector<std::string> plugin_paths(const std::string& list);

// The folder of hvd's own plugins: hvd/ beside the library or program that contains this code.
std::string installed_plugin_folder();

}  // namespace hvd
