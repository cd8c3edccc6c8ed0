// When a rank that waits for the coordinator's answer takes those for stopped through whom it would come.
//
// Pure; owned by the Negotiator. The coordinator answers everything that is asked within the stall limit, if with an
// error; what a join waits for, it answers within the limit, and the join within another one after that. So who has
// heard nothing for longer than that waits for a rank that does not run.
#pragma once

#include <optional>

#include "core/base/clock.h"

namespace hvd {

class AnswerLimit {
 public:
  AnswerLimit() = default;  // none
  // `margin`: what an answer may take beyond the limit of the coordinator.
  AnswerLimit(Duration limit, Duration margin) : limit_(limit), margin_(margin) {}

  bool is_set() const { return limit_ > Duration::zero(); }

  // This rank has asked for something,
  void asked(TimePoint now) {
    if (!since_) since_ = now;
  }
  // or was told something, or has done something together with others; and waits for more, or does not.
  void heard(TimePoint now, bool waits) { since_ = waits ? std::optional(now) : std::nullopt; }

  // `joins`: a join is among what it waits for.
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
