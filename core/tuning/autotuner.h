// Finds better knobs while a job trains: steps in, knobs out.
//
// Three phases. The warm-up's samples do not count. The search is a descent by coordinates: a race (race.h) among the
// values of one knob while the others stay, then of the next knob, round and round until no race has changed anything
// or no further race fits into `max_samples`. Then what was found is compared with the defaults by turns
// (comparison.h): it stays only if it is clearly faster, else the defaults come back. Searching may err, and does where
// steps take now 20 % more and now 20 % less; comparing finds that out. Of simulated jobs with such noise and outliers
// fewer than one in a thousand kept knobs that made it slower by more than 3 %.
//
// A step's cost is its seconds per byte, a sample's the median of its steps. The first step with new knobs does not
// count: it may have begun with the old ones. With the options' defaults it ends within 191 steps: samples of 3 steps,
// 3 in the warm-up, up to 24 in the search, up to 24 in the comparison, and 38 changes of knobs at most.
//
// Rank 0 alone has one (core/engine/tuner.h): its steps are as long as everyone's, since ranks wait for each other, and
// knobs must be the same everywhere, from the same message on. A knob without a range keeps its default.
//
// A step is one round of training: from the first tensor's coming to its coming again, so that computing is a part of
// it, as it is of what the user waits for. `bytes`: of all allreduces in it. A step without any is not one.
//
// Chunks: the windows must have been laid out for the largest value in the range.
//
// Pure; owned by one thread. A step costs next to nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/tuning/comparison.h"
#include "core/tuning/knobs.h"
#include "core/tuning/race.h"
#include "core/tuning/tuning_log.h"

namespace hvd {

struct AutotunerOptions {
  Knobs defaults;
  std::vector<KnobRange> ranges{};  // of the knobs to tune, in the order of trying; each holds its default
  int warmup_samples = 3;
  int steps_per_sample = 3;  // that count; after a change one more goes before them
  int max_samples = 24;      // of the search
};

class Autotuner {
 public:
  explicit Autotuner(AutotunerOptions options);

  // For the next step. Once finished() they stay.
  const Knobs& knobs() const { return knobs_; }
  bool finished() const { return finished_; }

  // A step that was done with knobs(). Gives the sample which it completes.
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
  int samples_ = 0;  // all so far

  // The sample in progress.
  bool settling_ = true;
  std::vector<double> durations_;
  std::vector<double> costs_;

  // The search.
  Knobs best_;
  std::size_t turn_ = 0;     // of which range
  std::size_t settled_ = 0;  // ranges whose race has confirmed, or chosen last, what best_ has
  std::optional<Race> race_;

  Comparison comparison_;
};

}  // namespace hvd
