// Searches for faster knobs while a job trains: takes steps, returns knobs.
//
// Three phases. The samples of the warm-up do not count. The search is a coordinate descent: a Race among the
// values of one knob while the others stay, then of the next knob, repeatedly until no race changes anything or no
// further race fits into `max_samples`. Then the result is compared with the defaults in alternation (Comparison): it
// is kept only if it is clearly faster. The search may be wrong where step times vary by 20 %; the comparison detects
// that. Of simulated jobs with such noise and outliers fewer than one in a thousand kept knobs that made it slower by
// more than 3 %.
//
// A step's cost is its seconds per byte, a sample's the median of its steps. The first step with new knobs does not
// count: it may have begun with the old ones. With the default options the tuner finishes within 191 steps: samples of
// 3 steps, 3 in the warm-up, up to 24 in the search, up to 24 in the comparison, and 38 changes of knobs at most.
//
// Only rank 0 has one (core/engine/tuner.h): its steps are as long as those of all ranks, since ranks wait for each
// other, and knobs must be the same everywhere, from the same message on. A knob without a range keeps its default.
//
// A step is one iteration of training, from one occurrence of the first tensor to the next, so it includes computation,
// as does the time that the user waits for. `bytes`: of all allreduces in it. A step without any is ignored.
//
// Chunks: the windows must have been laid out for the largest value in the range.
//
// Pure; owned by one thread. A step costs next to nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/tuning/comparison.h"
#include "core/tuning/knobs.h"

namespace hvd {

// A sequence of steps with the same knobs.
struct TuningSample {
  enum class Phase { warm_up, search, comparison };

  int number = 0;  // from 1
  Phase phase = Phase::warm_up;
  Knobs knobs;
  double seconds_per_step = 0;  // medians over its steps
  double seconds_per_byte = 0;
};

// Lines without line ends. cycle_time_ms, tensor_fusion_threshold and score have the names and units of Horovod's log,
// so that scripts for it work: the coalescing time, megabytes, bytes per microsecond.
std::string tuning_log_header();
std::string tuning_log_row(const TuningSample& sample);

struct AutotunerOptions {
  Knobs defaults;
  std::vector<KnobRange> ranges{};  // of the knobs to tune, in the order of trying; each contains its default
  int warmup_samples = 3;
  int steps_per_sample = 3;  // counted steps; one more precedes them after a change
  int max_samples = 24;      // of the search
};

class Autotuner {
 public:
  explicit Autotuner(AutotunerOptions options);

  // The knobs for the next step. They do not change once finished().
  const Knobs& knobs() const { return knobs_; }
  bool finished() const { return finished_; }

  // A step was done with knobs(). Returns the sample that it completes, if any.
  std::optional<TuningSample> step(std::int64_t bytes, Duration duration);

 private:
  void use_sample();
  void next_race();
  void end_race();
  void try_entrant();
  void end_search();
  void try_side();
  void finish(const Knobs& knobs);
  const KnobRange& range() const { return options_.ranges[turn_]; }
  const Knobs& knobs_of(Comparison::Side side) const;

  const AutotunerOptions options_;
  TuningSample::Phase phase_ = TuningSample::Phase::warm_up;
  bool finished_ = false;
  Knobs knobs_;
  int samples_ = 0;  // in total

  // The sample in progress.
  bool settling_ = true;
  std::vector<double> durations_;
  std::vector<double> costs_;

  // The search.
  Knobs best_;
  std::size_t turn_ = 0;     // index of the current range
  std::size_t settled_ = 0;  // consecutive ranges whose race has chosen the value in best_
  std::optional<Race> race_;

  Comparison comparison_;
};

}  // namespace hvd
