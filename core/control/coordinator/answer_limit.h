// The timeout of a rank that waits for the coordinator's answer: after it, the rank takes its parent for stopped.
//
// Pure; owned by the Negotiator. The coordinator answers every request within the stall limit, if only with an error:
// first the operations that a join waits for, then, within another limit, the join. So a rank that has received nothing
// for longer waits for a rank that does not run.
#pragma once

#include <optional>

#include "core/base/clock.h"

namespace hvd {

class AnswerLimit {
 public:
  AnswerLimit() = default;  // none
  // `margin`: how long an answer may take in addition to the coordinator's limit.
  AnswerLimit(Duration limit, Duration margin) : limit_(limit), margin_(margin) {}

  bool is_set() const { return limit_ > Duration::zero(); }

  // This rank has asked for something.
  void asked(TimePoint now) {
    if (!since_) since_ = now;
  }
  // This rank has received something, or has performed something with others. `waits`: it waits for more.
  void heard(TimePoint now, bool waits) { since_ = waits ? std::optional(now) : std::nullopt; }

  // `joins`: a join is among the pending operations.
  Deadline deadline(bool joins) const {
    if (!is_set() || !since_) return Deadline::max();
    const Duration delay = limit_ * (joins ? 2 : 1) + margin_;
    return *since_ > TimePoint::max() - delay ? Deadline::max() : *since_ + delay;
  }
  Duration waited(TimePoint now) const { return since_ ? now - *since_ : Duration::zero(); }

 private:
  Duration limit_{};
  Duration margin_{};
  std::optional<TimePoint> since_;
};

}  // namespace hvd
