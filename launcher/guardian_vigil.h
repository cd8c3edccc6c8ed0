// When a guardian acts (guardian.h): what hvdrun has said, and for how long nothing. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"

namespace hvd::launcher {

// One message each: the kind, and for `guard` the lease in milliseconds (u32, 0: none) and the mark.
enum class GuardianWord : char { guard = 'g', tick = 't', dismiss = 'd' };

inline constexpr std::size_t kMaxMarkBytes = 1024;

// Throws InvalidArgument if the mark is empty or too long.
std::string encode_guard(const std::string& mark, std::optional<Duration> lease);

class GuardianVigil {
 public:
  // A message. One that makes no sense is passed over.
  void hear(std::string_view message, TimePoint now);

  bool dismissed() const { return dismissed_; }
  const std::string& mark() const { return mark_; }  // empty: nothing to kill yet
  // When the silence becomes too long; empty: it never does.
  std::optional<Deadline> deadline() const;
  // Whether it is too long now. A guardian that comes to ask this late was held up itself, with the whole machine
  // perhaps: then the lease begins anew.
  bool silent(TimePoint now);

 private:
  std::string mark_;
  std::optional<Duration> lease_;
  TimePoint last_word_{};
  bool dismissed_ = false;
};

}  // namespace hvd::launcher
