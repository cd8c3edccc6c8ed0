#include "ops/plugin/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/dynamic_library.h"
#include "core/base/error.h"
#include "ops/plugin/plugin_backend.h"

namespace hvd {

namespace {

std::string not_available(const std::string& path, const std::string& why) {
  return "the plugin " + path + " is not available: " + why;
}

LogLevel level_of(std::int32_t level) {
  if (level >= 4) return LogLevel::error;
  if (level == 3) return LogLevel::warning;
  return level == 2 ? LogLevel::info : LogLevel::debug;
}

// Returns why the part of the table that this version of hvd reads cannot be used, or null.
const char* what_is_missing(const hvd_plugin* table) {
  if (table == nullptr) return "it does not support version 1 of hvd_plugin.h";
  if (table->struct_size < sizeof(hvd_plugin) || table->abi_version != HVD_PLUGIN_ABI_VERSION) {
    return "it was built with another version of hvd_plugin.h: build it with the one of this hvd";
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
    get = DynamicLibrary::open(path).find(HVD_PLUGIN_GET);
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

std::string installed_plugin_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&installed_plugin_folder), &info) == 0 || info.dli_fname == nullptr)
    return "hvd";
  std::error_code failed;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, failed);
  return ((failed ? std::filesystem::path(info.dli_fname) : file).parent_path() / "hvd").string();
}

std::shared_ptr<PluginCommunicator> PluginCommunicator::open(std::shared_ptr<const PluginLibrary> library,
                                                             const Topology& topology, const AbortFlag& abort,
                                                             const Log& log, Deadline deadline) {
  // On this thread, which lasts: MPI is to be finalized by the thread that has initialized it.
  if (const hvd_plugin_launch* const launch = library->table().launch) {
    std::int32_t rank = 0, size = 0;
    library->check(launch->join(&rank, &size));
  }
  std::shared_ptr<PluginCommunicator> communicator(new PluginCommunicator(std::move(library), topology, abort, log));
  WatchedThread thread("hvd " + std::string(communicator->library().name()), WaitPolicy{});
  try {
    thread.run([&own = *communicator] { own.open_group(); }, deadline, abort,
               "waiting for " + std::string(communicator->library().name()) + " to open its group of " +
                   std::to_string(topology.size) + " ranks");
  } catch (...) {
    thread.lost() ? abandon(std::move(communicator)) : communicator->set_failed();
    throw;
  }
  return communicator;
}

PluginCommunicator::PluginCommunicator(std::shared_ptr<const PluginLibrary> library, const Topology& topology,
                                       const AbortFlag& abort, const Log& log)
    : library_(std::move(library)),
      abort_(abort),
      log_(log),
      job_ranks_(topology.job_ranks.begin(), topology.job_ranks.end()) {
  host_ = {
      .struct_size = sizeof host_,
      .context = this,
      .log = [](void* self, std::int32_t level,
                const char* text) { static_cast<const PluginCommunicator*>(self)->log(level, text); },
      .is_stopped = [](void* self) { return static_cast<const PluginCommunicator*>(self)->is_stopped() ? 1 : 0; },
      .delegate = [](void* self,
                     const hvd_plugin_call* call) { return static_cast<PluginCommunicator*>(self)->delegate(*call); }};
  group_ = {.struct_size = sizeof group_, .rank = topology.rank, .size = topology.size, .job_ranks = job_ranks_.data()};
}

void PluginCommunicator::open_group() {
  library_->check(library_->table().open_group(&host_, &group_, &opened_));
  is_open_ = true;
}

PluginCommunicator::~PluginCommunicator() {
  if (is_open_) library_->table().close_group(opened_, failed_ ? 1 : 0);
}

void PluginCommunicator::set_delegate(DelegateCall delegate) {
  const MutexLock lock(delegate_mutex_);
  delegate_ = std::move(delegate);
}

void PluginCommunicator::run(const hvd_plugin_call& call) {
  delegated_status_ = Status();
  const hvd_status status = library_->table().run(opened_, &call);
  if (!delegated_status_.ok()) throw Error(delegated_status_);
  library_->check(status);
}

// Called through C, which exceptions must not cross.
hvd_status PluginCommunicator::delegate(const hvd_plugin_call& call) noexcept {
  const MutexLock lock(delegate_mutex_);
  if (!delegate_) return HVD_UNSUPPORTED;
  try {
    delegate_(call);
  } catch (...) {
    delegated_status_ = current_exception_status();
  }
  return static_cast<hvd_status>(delegated_status_.code());
}

void PluginCommunicator::log(std::int32_t level, const char* text) const {
  const MutexLock lock(host_mutex_);
  if (!abandoned_) log_.write(level_of(level), std::string(library_->name()) + ": " + text);
}

bool PluginCommunicator::is_stopped() const {
  const MutexLock lock(host_mutex_);
  return abandoned_ || abort_.raised();
}

void PluginCommunicator::abandon(std::shared_ptr<PluginCommunicator> communicator) {
  {
    const MutexLock lock(communicator->host_mutex_);
    communicator->abandoned_ = true;
  }
  static_cast<void>(new std::shared_ptr<PluginCommunicator>(std::move(communicator)));
}

}  // namespace hvd
