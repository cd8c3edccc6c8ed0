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
// Only rank 0 has one: its steps are as long as those of all ranks, since ranks wait for each other, and knobs must be
// the same everywhere, from the same message on. A knob without a range keeps its default.
//
// A step is one iteration of training, from one occurrence of the first tensor to the next, so it includes computation,
// as does the time that the user waits for. `bytes`: of all allreduces in it. A step without any is ignored.
//
// Chunks: the windows must have been laid out for the largest value in the range.
//
// Pure except for the Tuner, which runs it: reads the configuration, times the steps and writes the log. Owned by the
// thread that drives the engine. A step costs next to nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/config.h"
#include "core/operation/operation_spec.h"

namespace hvd {

struct KnobRange {
  std::int64_t Knobs::*knob = nullptr;
  std::vector<std::int64_t> values;  // ascending, each once
};

// The values to try: powers of two times the knob's default, which is among them; for a default of zero, zero and a few
// small values. Chunks are multiples of 4096 bytes.
KnobRange range_around(std::int64_t Knobs::*knob, const Knobs& defaults);

// ---- By step times, which are noisy, whether one thing is faster than another

// Requires at least one value.
double median(std::vector<double> values);

// Finds the cheapest of a few entrants by successive halving (K. Jamieson and A. Talwalkar, "Non-stochastic best arm
// identification and hyperparameter optimization", 2016): in each round every entrant takes one sample, then the half
// with the higher costs leaves, until one is left. So most samples go to those that are hard to distinguish, and a slow
// entrant slows the job down only once.
//
// An entrant's cost is the median over all its steps.
class Race {
 public:
  // Entrants are 0, 1, ...; at least one. Among equals the favourite wins, else the lower number.
  Race(std::size_t entrants, std::size_t favourite) : remaining_(entrants), costs_(entrants) {
    std::iota(remaining_.begin(), remaining_.end(), std::size_t{0});
    const auto first = remaining_.begin() + static_cast<std::ptrdiff_t>(favourite);
    std::rotate(remaining_.begin(), first, first + 1);
  }

  bool decided() const { return remaining_.size() == 1; }
  std::size_t winner() const { return remaining_.front(); }

  // Until it is decided: which entrant takes the next sample, and the costs of that sample's steps.
  std::size_t next() const { return remaining_[turn_]; }
  void took(std::span<const double> costs) {
    std::vector<double>& all = costs_[next()];
    all.insert(all.end(), costs.begin(), costs.end());
    if (++turn_ < remaining_.size()) return;
    turn_ = 0;
    std::stable_sort(remaining_.begin(), remaining_.end(),
                     [&](std::size_t a, std::size_t b) { return median(costs_[a]) < median(costs_[b]); });
    remaining_.resize(half(remaining_.size()));
  }

  // The number of samples that a race takes.
  static int samples(std::size_t entrants) {
    int total = 0;
    for (; entrants > 1; entrants = half(entrants)) total += static_cast<int>(entrants);
    return total;
  }

 private:
  static std::size_t half(std::size_t entrants) { return entrants > 2 ? (entrants + 1) / 2 : 1; }

  std::vector<std::size_t> remaining_;      // the favourite first, later ordered by cost
  std::vector<std::vector<double>> costs_;  // of each step, by entrant
  std::size_t turn_ = 0;
};

// Tests whether a challenger is really faster than the incumbent: the two take samples alternately, in pairs, whose
// order alternates too, so that whatever else becomes slower or faster meanwhile affects both alike.
//
// The challenger wins if
// - it is faster in all pairs except at most one: between equals that happens once in 315 times, whatever the noise
//   looks like, and an outlier spoils one pair; and
// - its median over all steps is lower by 1 %, and by more than the noise: the possible error of the median of so many
//   of the incumbent's samples.
// The second lost pair ends the comparison, so that a challenger that is no better costs few samples.
class Comparison {
 public:
  enum class Side { incumbent, challenger };

  // Until verdict(): which side takes the next sample, and the costs of that sample's steps.
  Side next() const;
  void took(std::span<const double> costs);

  // The winner, once decided.
  std::optional<Side> verdict() const { return verdict_; }

  static constexpr int kPairs = 12;
  static constexpr int kPairsToLose = 2;

 private:
  struct Costs {
    std::vector<double> steps;
    std::vector<double> samples;  // the median of each
  };
  void judge_pair();
  bool is_clearly_faster() const;

  Costs& of(Side side) { return costs_[static_cast<std::size_t>(side)]; }
  const Costs& of(Side side) const { return costs_[static_cast<std::size_t>(side)]; }

  std::array<Costs, 2> costs_;
  int samples_ = 0;
  int lost_ = 0;  // pairs lost by the challenger
  std::optional<Side> verdict_;
};

// ---- The autotuner

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

// Detects where a training step ends: when an operation repeats.
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

// Runs the autotuner: times the steps of the set of all ranks on rank 0, and writes the log.
class Tuner {
 public:
  // Tunes the knobs that the user has not set. `log` outlives this object.
  Tuner(const Config& config, const Log& log);

  // The operation is being performed. Returns the knobs that all ranks are to use from now on, if they change.
  std::optional<Knobs> performed(const OperationSpec& spec, TimePoint now);

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
