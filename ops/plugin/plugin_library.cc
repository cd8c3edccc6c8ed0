#include "ops/plugin/plugin_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "core/base/dynamic_library.h"
#include "core/base/error.h"

namespace hvd {

namespace {

std::string not_available(const std::string& path, const std::string& why) {
  return "the plugin " + path + " is not available: " + why;
}

// Returns why the part of the table that this version of hvd reads cannot be used, or null.
const char* what_is_missing(const hvd_plugin* table) {
  if (table == nullptr) return "it does not know version 1 of hvd_plugin.h";
  if (table->struct_size < sizeof(hvd_plugin) || table->abi_version != HVD_PLUGIN_ABI_VERSION) {
    return "it was built with another version of hvd_plugin.h";
  }
  if (table->name == nullptr || *table->name == '\0') return "it has no name";
  if (table->last_error == nullptr || table->self_test == nullptr || table->open_group == nullptr ||
      table->score == nullptr || table->run == nullptr || table->close_group == nullptr) {
    return "functions are missing in its table";
  }
  const hvd_plugin_launch* launch = table->launch;
  if (launch != nullptr && (launch->join == nullptr || launch->broadcast == nullptr)) {
    return "functions are missing in its launch table";
  }
  const hvd_plugin_transport* transport = table->transport;
  if (transport != nullptr &&
      (transport->post_send == nullptr || transport->post_receive == nullptr || transport->test == nullptr)) {
    return "functions are missing in its transport table";
  }
  return nullptr;
}

}  // namespace

PluginLibrary::PluginLibrary(const std::string& path) {
  hvd_plugin_get_function get = nullptr;
  try {
    DynamicLibrary::open(path).accept(get, HVD_PLUGIN_GET);
  } catch (const Unsupported& error) {
    throw Unsupported(not_available(path, error.what()));
  }
  if (get == nullptr) throw Unsupported(not_available(path, "it has no function " HVD_PLUGIN_GET));
  table_ = get(HVD_PLUGIN_ABI_VERSION);
  if (const char* const missing = what_is_missing(table_)) throw Unsupported(not_available(path, missing));
  const hvd_status status = table_->self_test();
  if (status != HVD_OK) throw Unsupported(not_available(path, last_error()));
}

void PluginLibrary::check(hvd_status status) const {
  if (status == HVD_OK) return;
  const bool known = status > HVD_OK && status <= HVD_INTERNAL;
  throw Error(known ? static_cast<StatusCode>(status) : StatusCode::internal,
              std::string(name()) + ": " + last_error());
}

std::string PluginLibrary::last_error() const {
  const char* const text = table_->last_error();
  return text != nullptr ? text : "no reason given";
}

std::vector<std::string> plugin_paths(const std::string& list) {
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) paths.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

std::string installed_plugin_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&installed_plugin_folder), &info) == 0 || info.dli_fname == nullptr)
    return "hvd";
  std::error_code failed;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, failed);
  return ((failed ? std::filesystem::path(info.dli_fname) : file).parent_path() / "hvd").string();
}

}  // namespace hvd
