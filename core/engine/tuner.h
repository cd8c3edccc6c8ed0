// The autotuner at work (core/tuning/autotuner.h): times the steps of the set of all ranks on rank 0, and writes the
// log. Used by whoever drives the engine.
#pragma once

#include <fstream>
#include <optional>

#include "core/base/log.h"
#include "core/config.h"
#include "core/negotiation/response.h"
#include "core/tuning/autotuner.h"
#include "core/tuning/step_timer.h"

namespace hvd {

// What the settings say, before anything is tuned.
Knobs knobs_of(const Config& config);

class Tuner {
 public:
  // Tunes what nobody has set by hand. `log` outlives it.
  Tuner(const Config& config, const Log& log);

  // Is performed now. Gives what all ranks are to use from now on, if that changes.
  std::optional<Knobs> performed(const Response& response, TimePoint now);

  // Nothing will change any more.
  bool finished() const { return autotuner_.finished(); }

 private:
  void write(const std::string& line);

  const Log& log_;
  Autotuner autotuner_;
  StepTimer steps_;
  std::ofstream file_;
};

}  // namespace hvd
