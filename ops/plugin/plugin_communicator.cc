#include "ops/plugin/plugin_communicator.h"

#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

LogLevel level_of(std::int32_t level) {
  if (level >= 4) return LogLevel::error;
  if (level == 3) return LogLevel::warning;
  return level == 2 ? LogLevel::info : LogLevel::debug;
}

}  // namespace

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
      .hand_on = [](void* self,
                    const hvd_plugin_call* call) { return static_cast<PluginCommunicator*>(self)->hand_on(*call); }};
  group_ = {.struct_size = sizeof group_, .rank = topology.rank, .size = topology.size, .job_ranks = job_ranks_.data()};
  library_->check(library_->table().open_group(&host_, &group_, &opened_));
}

PluginCommunicator::~PluginCommunicator() { library_->table().close_group(opened_, failed_ ? 1 : 0); }

void PluginCommunicator::set_hand_on(HandOn hand_on) {
  const std::lock_guard lock(handing_on_);
  hand_on_ = std::move(hand_on);
}

void PluginCommunicator::run(const hvd_plugin_call& call) {
  handed_on_ = Status();
  const hvd_status status = library_->table().run(opened_, &call);
  if (!handed_on_.ok()) throw Error(handed_on_);
  library_->check(status);
}

// Called through C, which exceptions must not cross.
hvd_status PluginCommunicator::hand_on(const hvd_plugin_call& call) noexcept {
  const std::lock_guard lock(handing_on_);
  if (!hand_on_) return HVD_UNSUPPORTED;
  try {
    hand_on_(call);
  } catch (...) {
    handed_on_ = current_exception_status();
  }
  return static_cast<hvd_status>(handed_on_.code());
}

void PluginCommunicator::log(std::int32_t level, const char* text) const {
  const std::lock_guard lock(asking_host_);
  if (!abandoned_) log_.write(level_of(level), std::string(library_->name()) + ": " + text);
}

bool PluginCommunicator::is_stopped() const {
  const std::lock_guard lock(asking_host_);
  return abandoned_ || abort_.raised();
}

void PluginCommunicator::abandon(std::shared_ptr<PluginCommunicator> group) {
  {
    const std::lock_guard lock(group->asking_host_);
    group->abandoned_ = true;
  }
  static_cast<void>(new std::shared_ptr<PluginCommunicator>(std::move(group)));
}

}  // namespace hvd
