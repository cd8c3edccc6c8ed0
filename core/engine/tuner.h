// Runs the autotuner (core/tuning/autotuner.h): times the steps of the set of all ranks on rank 0, and writes the log.
// Called by the thread that drives the engine.
#pragma once

#include <fstream>
#include <optional>

#include "core/base/log.h"
#include "core/config.h"
#include "core/control/protocol/response.h"
#include "core/tuning/autotuner.h"
#include "core/tuning/step_timer.h"

namespace hvd {

// The configured knobs, before anything is tuned.
Knobs knobs_of(const Config& config);

class Tuner {
 public:
  // Tunes the knobs that the user has not set. `log` outlives this object.
  Tuner(const Config& config, const Log& log);

  // The response is being performed. Returns the knobs that all ranks are to use from now on, if they change.
  std::optional<Knobs> performed(const Response& response, TimePoint now);

  // The knobs will not change any more.
  bool finished() const { return autotuner_.finished(); }

 private:
  void write(const std::string& line);

  const Log& log_;
  Autotuner autotuner_;
  StepTimer steps_;
  std::ofstream file_;
};

}  // namespace hvd
