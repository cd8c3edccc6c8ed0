#include "launcher/plan/gpus.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr int kMaxGpus = 1024;  // per host

// Splits "0,1" or "GPU-3fa1,MIG-77".
std::vector<std::string> split_devices(std::string_view text) {
  std::vector<std::string> devices;
  while (!text.empty()) {
    const auto comma = text.find(',');
    devices.emplace_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return devices;
}

}  // namespace

GpusPerRank parse_gpus_per_rank(const std::string& text) {
  if (text == "auto" || text == "AUTO") return {};
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= kMaxGpus) {
    return {.number = number};
  }
  throw InvalidArgument("--gpus-per-rank " + text + ": a number, or auto");
}

std::vector<int> gpus_of_rank(const GpusPerRank& rule, int local_rank, int local_size, int gpus_on_host,
                              const std::string& host) {
  if (rule.number && static_cast<long>(*rule.number) * local_size > gpus_on_host) {
    throw InvalidArgument("--gpus-per-rank " + std::to_string(*rule.number) + ": " + host + " has " +
                          std::to_string(local_size) + " ranks and " + std::to_string(gpus_on_host) + " GPUs");
  }
  if (gpus_on_host <= 0) return {};
  const int each = rule.number.value_or(std::max(1, gpus_on_host / local_size));
  std::vector<int> gpus;
  for (int i = 0; i < each; ++i) gpus.push_back((local_rank * each + i) % gpus_on_host);
  return gpus;
}

std::string visible_devices(const std::vector<int>& gpus, const std::optional<std::string>& own_value) {
  const std::vector<std::string> own = split_devices(own_value.value_or(""));
  std::string text;
  for (const int gpu : gpus) {
    const auto place = static_cast<std::size_t>(gpu);
    text += (text.empty() ? "" : ",") + (place < own.size() ? own[place] : std::to_string(gpu));
  }
  return text;
}

int count_gpus(const std::optional<std::string>& visible, const std::string& driver) {
  int there = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(driver, error), end; !error && entry != end; entry.increment(error)) {
    ++there;
  }
  if (!visible) return std::min(there, kMaxGpus);
  // CUDA's rule: devices after an invalid one are ignored; -1 is the usual invalid one.
  const std::vector<std::string> listed = split_devices(*visible);
  const auto first_wrong = std::ranges::find_if(listed, [](const std::string& name) { return name.starts_with('-'); });
  return std::min(static_cast<int>(first_wrong - listed.begin()), there == 0 ? 0 : kMaxGpus);
}

}  // namespace hvd::launcher
