#include "launcher/membership/host_discovery.h"

#include <sstream>
#include <utility>

#include "core/base/error.h"

namespace hvd::launcher {

std::vector<HostSlots> parse_discovered_hosts(std::string_view text) {
  std::string list;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    list += (list.empty() ? "" : ",") + line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
  }
  return list.empty() ? std::vector<HostSlots>() : parse_hosts(list);
}

HostDiscovery::HostDiscovery(EventLoop& loop, const SignalSource& signals, std::string command, Duration interval,
                             Callbacks callbacks)
    : callbacks_(std::move(callbacks)),
      script_(loop, signals, std::move(command), interval, PolledScript::Errors::passed_on,
              {.ended = [this](const std::string& output, ExitStatus status) { on_ended(output, status); },
               .failed = [this](const std::string& cause) { fail(cause); },
               .listed = [this](const std::string& list) { on_list(list); }}) {}

void HostDiscovery::on_ended(const std::string& output, ExitStatus status) {
  if (!status.ok()) return fail(ending_text(status));
  on_list(output);
}

void HostDiscovery::on_list(const std::string& output) {
  try {
    std::vector<HostSlots> hosts = parse_discovered_hosts(output);
    last_complaint_.clear();
    if (last_ && *last_ == hosts) return;
    last_ = std::move(hosts);
    callbacks_.found(*last_);
  } catch (const InvalidArgument& error) {
    fail(error.what());
  }
}

void HostDiscovery::fail(const std::string& cause) {
  if (std::exchange(last_complaint_, cause) == cause) return;
  callbacks_.complaint("--host-discovery-script " + script_.command() + ": " + cause + "; the hosts stay as they are");
}

}  // namespace hvd::launcher
