// Detects where a training step ends: when an operation repeats. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>

#include "core/base/clock.h"

namespace hvd {

class StepTimer {
 public:
  struct Step {
    std::int64_t bytes = 0;
    Duration duration{};
  };

  // An allreduce is performed. Returns the previous step if this is the first allreduce of a new one; not the very
  // first step, whose beginning is unknown.
  std::optional<Step> performed(const std::string& name, std::int64_t bytes, TimePoint now) {
    std::optional<Step> ended;
    if (names_.contains(name)) {
      if (began_) ended = Step{bytes_, now - *began_};
      began_ = now;
      names_.clear();
      bytes_ = 0;
    }
    names_.insert(name);
    bytes_ += bytes;
    return ended;
  }

 private:
  std::unordered_set<std::string> names_;
  std::int64_t bytes_ = 0;
  std::optional<TimePoint> began_;
};

}  // namespace hvd
