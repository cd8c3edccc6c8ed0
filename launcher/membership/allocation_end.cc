#include "launcher/membership/allocation_end.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "launcher/plan/host_resources.h"

namespace hvd::launcher {

std::optional<Duration> time_left_in(const Environment& environment, double now) {
  const auto found = environment.find("SLURM_JOB_END_TIME");
  if (found == environment.end()) return std::nullopt;
  char* end = nullptr;
  const double then = std::strtod(found->second.c_str(), &end);
  if (found->second.empty() || *end != '\0' || !(then > 0)) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::clamp(then - now, 0.0, 1e9)));
}

std::optional<Duration> parse_time_left(std::string_view text) {
  static constexpr std::array kUnits = {1s, 60s, 3600s, 86400s};
  Duration left{};
  std::string_view rest = text;
  for (std::size_t unit = 0; unit < kUnits.size(); ++unit) {
    const auto mark = rest.find_last_of(unit == 2 ? "-" : ":");
    const auto number = number_within(rest.substr(mark == std::string_view::npos ? 0 : mark + 1), 0, 99999);
    if (!number) return std::nullopt;
    left += *number * kUnits[unit];
    if (mark == std::string_view::npos) return left;
    rest = rest.substr(0, mark);
  }
  return std::nullopt;
}

AllocationEnd::AllocationEnd(EventLoop& loop, const SignalSource& signals, const Environment& environment,
                             Duration margin, Duration interval, Callbacks callbacks)
    : margin_(margin),
      callbacks_(std::move(callbacks)),
      squeue_(loop, signals, "exec squeue --noheader --jobs=\"$SLURM_JOB_ID\" --format=%L", interval,
              PolledScript::Errors::part_of_output,
              {.ended = [this](const std::string& output, ExitStatus) { on_answer(output); },
               .failed = [this](const std::string& cause) { warn(cause); }}) {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  if (const auto left = time_left_in(environment, std::chrono::duration<double>(since_1970).count())) set_left(left);
}

void AllocationEnd::on_answer(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  const auto left = parse_time_left(text);
  if (!left && text != "UNLIMITED") return warn(std::string(text));
  set_left(left);
}

void AllocationEnd::set_left(std::optional<Duration> left) {
  const bool is_first = !std::exchange(is_answered_, true);
  const auto end = left ? std::optional(Clock::now() + *left) : std::nullopt;
  const bool is_same = end && end_ ? std::chrono::abs(*end - *end_) < kSameEnd : end.has_value() == end_.has_value();
  if (is_same) return;
  end_ = end;
  callbacks_.known(end ? std::optional(*end - margin_within(margin_, *left)) : std::nullopt, !is_first);
}

void AllocationEnd::warn(const std::string& cause) {
  if (std::exchange(is_answered_, true)) return;
  callbacks_.warning("cannot find out when the allocation ends (" + cause +
                     "), so the job will not end early by itself; submit it with sbatch --signal=B:USR1@60");
}

}  // namespace hvd::launcher
