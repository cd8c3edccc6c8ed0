#include "launcher/guardian_vigil.h"

#include <cstdint>
#include <cstring>

#include "core/base/error.h"

namespace hvd::launcher {

std::string encode_guard(const std::string& mark, std::optional<Duration> lease) {
  if (mark.empty() || mark.size() > kMaxMarkBytes) throw InvalidArgument("no mark of a job");
  const auto ms = lease ? std::chrono::ceil<std::chrono::milliseconds>(*lease).count() : 0;
  const auto lease_ms = static_cast<std::uint32_t>(ms);
  std::string message(1 + sizeof lease_ms, static_cast<char>(GuardianWord::guard));
  std::memcpy(message.data() + 1, &lease_ms, sizeof lease_ms);
  return message + mark;
}

void GuardianVigil::hear(std::string_view message, TimePoint now) {
  if (message.empty()) return;
  last_word_ = now;
  switch (static_cast<GuardianWord>(message[0])) {
    case GuardianWord::guard: {
      std::uint32_t lease_ms = 0;
      if (message.size() <= 1 + sizeof lease_ms) return;
      std::memcpy(&lease_ms, message.data() + 1, sizeof lease_ms);
      lease_ = lease_ms > 0 ? std::optional<Duration>(std::chrono::milliseconds(lease_ms)) : std::nullopt;
      mark_ = message.substr(1 + sizeof lease_ms);
      return;
    }
    case GuardianWord::tick: return;
    case GuardianWord::dismiss: dismissed_ = true; return;
  }
}

std::optional<Deadline> GuardianVigil::deadline() const {
  if (!lease_) return std::nullopt;
  return last_word_ + *lease_;
}

bool GuardianVigil::silent(TimePoint now) {
  const auto end = deadline();
  if (!end || now < *end) return false;
  if (now < *end + *lease_ / 2) return true;
  last_word_ = now;
  return false;
}

}  // namespace hvd::launcher
