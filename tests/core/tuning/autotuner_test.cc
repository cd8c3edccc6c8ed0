#include "core/tuning/autotuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

// ---- A job without ranks: how long a step takes follows from the knobs by a formula, with noise from a seeded
// generator

const Knobs kDefaults{.fusion_threshold_bytes = 64 << 20, .coalescing_us = 0, .chunk_bytes = 256 << 10};

// Seconds of a step without noise.
using Landscape = std::function<double(const Knobs&)>;

struct Noise {
  double amplitude = 0;     // a step takes up to so much more or less of its time,
  double outlier_odds = 0;  // and now and then five times as long
};

class SimulatedJob {
 public:
  SimulatedJob(Landscape landscape, Noise noise, unsigned seed)
      : landscape_(std::move(landscape)), noise_(noise), random_(seed) {}

  Duration step(const Knobs& knobs) {
    double taken = landscape_(knobs) * (1 + noise_.amplitude * (2 * uniform() - 1));
    if (uniform() < noise_.outlier_odds) taken *= 5;
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(taken));
  }

 private:
  // From 0 to 1, the same with every standard library.
  double uniform() { return static_cast<double>(random_()) / static_cast<double>(std::mt19937::max()); }

  Landscape landscape_;
  Noise noise_;
  std::mt19937 random_;
};

struct Tuned {
  Knobs knobs;
  int steps = 0;
  std::vector<TuningSample> samples;
};

constexpr std::int64_t kStepBytes = 100 << 20;

// Trains until the autotuner has finished.
Tuned tune(const AutotunerOptions& options, SimulatedJob job) {
  Autotuner autotuner(options);
  Tuned tuned;
  for (; !autotuner.finished() && tuned.steps < 10'000; ++tuned.steps) {
    if (auto sample = autotuner.step(kStepBytes, job.step(autotuner.knobs()))) tuned.samples.push_back(*sample);
  }
  tuned.knobs = autotuner.knobs();
  return tuned;
}

// How many factors of two lie between two values.
double octaves(std::int64_t a, std::int64_t b) {
  return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

}  // namespace

TEST_CASE("What is tried for a knob: powers of two times its default") {
  constexpr std::int64_t kKilo = 1 << 10;
  constexpr std::int64_t kMega = 1 << 20;
  struct Row {
    const char* what;
    std::int64_t Knobs::*knob;
    std::int64_t by_default;
    std::vector<std::int64_t> values;
  };
  const Row rows[] = {
      {"fusion", &Knobs::fusion_threshold_bytes, 64 * kMega, {4 * kMega, 16 * kMega, 64 * kMega, 256 * kMega}},
      {"no fusion", &Knobs::fusion_threshold_bytes, 0, {0, kMega, 2 * kMega, 4 * kMega}},
      {"coalescing", &Knobs::coalescing_us, 100, {25, 50, 100, 200}},
      {"no coalescing", &Knobs::coalescing_us, 0, {0, 32, 64, 128}},
      {"chunks", &Knobs::chunk_bytes, 256 * kKilo, {64 * kKilo, 128 * kKilo, 256 * kKilo, 512 * kKilo}},
      {"pages are not divided", &Knobs::chunk_bytes, 12 * kKilo, {4 * kKilo, 12 * kKilo, 24 * kKilo}},
      {"the smallest chunk", &Knobs::chunk_bytes, 4 * kKilo, {4 * kKilo, 8 * kKilo}},
      {"tiny", &Knobs::fusion_threshold_bytes, 1, {1, 4}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Knobs defaults = kDefaults;
    defaults.*row.knob = row.by_default;
    const KnobRange range = range_around(row.knob, defaults);
    CHECK(range.knob == row.knob);
    CHECK(range.values == row.values);
  }
}

TEST_CASE("A step ends when an operation comes again") {
  StepTimer timer;
  TimePoint now{1000s};
  const auto perform = [&](const char* name) {
    now += 1ms;
    return timer.performed(name, 100, now);
  };
  CHECK_FALSE(perform("a"));
  CHECK_FALSE(perform("b"));
  CHECK_FALSE(perform("b"));  // the first step: when it began nobody knows
  CHECK_FALSE(perform("a"));
  CHECK_FALSE(perform("c"));
  const auto step = perform("a");
  REQUIRE(step);
  CHECK(step->bytes == 300);
  CHECK(step->duration == 3ms);
}

TEST_CASE("The median of odd and even numbers of values, in any order") {
  CHECK(median({3}) == 3);
  CHECK(median({4, 2}) == 3);
  CHECK(median({9, 1, 5}) == 5);
  CHECK(median({8, 1, 3, 4}) == 3.5);
  CHECK(median({2, 2, 2, 1000}) == 2);
}

TEST_CASE("A race ends with the entrant that costs least, after as many samples as it says") {
  struct Row {
    std::vector<double> costs;  // by entrant
    std::size_t favourite;
    std::size_t winner;
    int samples;
  };
  const Row rows[] = {
      {{5}, 0, 0, 0},          {{2, 1}, 0, 1, 2},           {{3, 1, 2}, 0, 1, 5},    {{4, 3, 2, 1}, 0, 3, 6},
      {{1, 2, 3, 4}, 3, 0, 6}, {{5, 4, 3, 1, 2}, 2, 3, 10}, {{1, 1, 1, 1}, 2, 2, 6},  // equals: the favourite
      {{2, 1, 2, 1}, 0, 1, 6},
  };
  for (const Row& row : rows) {
    CAPTURE(row.costs, row.favourite);
    Race race(row.costs.size(), row.favourite);
    int samples = 0;
    for (; !race.decided(); ++samples) race.took(std::array{row.costs[race.next()], row.costs[race.next()]});
    CHECK(race.winner() == row.winner);
    CHECK(samples == row.samples);
    CHECK(Race::samples(row.costs.size()) == row.samples);
  }
}

TEST_CASE("Everyone runs once in a round, the favourite first, and those with the higher costs leave") {
  const std::vector<double> costs = {4, 1, 3, 2};
  Race race(4, 2);
  std::vector<std::size_t> order;
  while (!race.decided()) {
    order.push_back(race.next());
    race.took(std::array{costs[race.next()]});
  }
  CHECK(order == std::vector<std::size_t>{2, 0, 1, 3, 1, 3});
}

TEST_CASE("An entrant is judged by all the steps that it has had") {
  Race race(4, 0);
  for (const double cost : {1.0, 2.0, 8.0, 9.0}) race.took(std::array{cost, cost, cost});
  // 0 has one slow step more than 1, which its median of six does not see.
  race.took(std::array{1.0, 1.0, 50.0});
  race.took(std::array{2.0, 2.0, 2.0});
  CHECK(race.winner() == 0);
}

namespace {

using Side = Comparison::Side;

using Costs = std::function<double(std::size_t pair)>;

struct Result {
  Side verdict;
  int samples;
};

// The challenger's samples cost `challenger[pair]`, the incumbent's `incumbent[pair]`, each in three steps of which
// one is an outlier.
Result compare(const Costs& incumbent, const Costs& challenger) {
  Comparison comparison;
  int samples = 0;
  for (; !comparison.verdict(); ++samples) {
    const auto pair = static_cast<std::size_t>(samples / 2);
    const double cost = comparison.next() == Side::incumbent ? incumbent(pair) : challenger(pair);
    comparison.took(std::array{cost, 100 * cost, cost});
  }
  return {*comparison.verdict(), samples};
}

}  // namespace

TEST_CASE("The sides change places from pair to pair") {
  Comparison comparison;
  std::string order;
  for (int i = 0; i < 8; ++i) {
    order += comparison.next() == Side::incumbent ? 'i' : 'c';
    comparison.took(std::array{comparison.next() == Side::incumbent ? 2.0 : 1.0});
  }
  CHECK(order == "icciicci");
}

TEST_CASE("Who wins a comparison") {
  const auto always = [](double cost) { return [cost](std::size_t) { return cost; }; };
  const auto except = [](double cost, std::vector<std::size_t> pairs, double there) {
    return [=](std::size_t pair) { return std::find(pairs.begin(), pairs.end(), pair) == pairs.end() ? cost : there; };
  };
  // Steps become slower by a fifth from pair to pair.
  const auto growing = [](double cost) { return [cost](std::size_t pair) { return cost * std::pow(1.2, pair); }; };
  const auto restless = [](std::size_t pair) { return pair % 2 == 0 ? 1.0 : 1.4; };
  const auto just_below = [](std::size_t pair) { return pair % 2 == 0 ? 0.985 : 1.385; };
  const int all = 2 * Comparison::kPairs;
  struct Row {
    const char* what;
    Costs incumbent, challenger;
    Side verdict;
    int samples;
  };
  const Row rows[] = {
      {"faster", always(1), always(0.9), Side::challenger, all},
      {"faster by 2 %", always(1), always(0.98), Side::challenger, all},
      {"faster by less than is worth it", always(1), always(0.995), Side::incumbent, all},
      {"equal", always(1), always(1), Side::incumbent, 4},
      {"slower", always(1), always(1.5), Side::incumbent, 4},
      {"one pair spoilt", always(1), except(0.9, {5}, 7), Side::challenger, all},
      {"two pairs spoilt", always(1), except(0.9, {5, 7}, 7), Side::incumbent, 16},
      {"everything becomes slower", growing(1), growing(0.9), Side::challenger, all},
      {"less than the noise", restless, just_below, Side::incumbent, all},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Result result = compare(row.incumbent, row.challenger);
    CHECK(result.verdict == row.verdict);
    CHECK(result.samples == row.samples);
  }
}

TEST_CASE("A sample is a line of the log, in the units of its columns") {
  CHECK(tuning_log_header() == "sample,phase,chunk_bytes,step_ms,cycle_time_ms,tensor_fusion_threshold,score");
  const TuningSample sample{.number = 7,
                            .phase = TuningSample::Phase::search,
                            .knobs = {.fusion_threshold_bytes = 16 << 20, .coalescing_us = 50, .chunk_bytes = 131072},
                            .seconds_per_step = 0.0125,
                            .seconds_per_byte = 0.5e-9};
  CHECK(tuning_log_row(sample) == "7,search,131072,12.5,0.05,16,2000");
}

namespace {

constexpr int kMaxSteps = 200;
constexpr unsigned kSeeds = 1000;
constexpr Noise kQuiet{.amplitude = 0.03, .outlier_odds = 0.02};
constexpr Noise kLoud{.amplitude = 0.2, .outlier_odds = 0.05};

AutotunerOptions options_for(const std::vector<std::int64_t Knobs::*>& knobs) {
  AutotunerOptions options{.defaults = kDefaults};
  for (const auto knob : knobs) options.ranges.push_back(range_around(knob, kDefaults));
  return options;
}

const AutotunerOptions kTwoKnobs = options_for({&Knobs::fusion_threshold_bytes, &Knobs::chunk_bytes});
const AutotunerOptions kThreeKnobs =
    options_for({&Knobs::fusion_threshold_bytes, &Knobs::chunk_bytes, &Knobs::coalescing_us});

double flat(const Knobs&) { return 0.01; }

double best_by_default(const Knobs& k) {
  return 0.01 * (1 + 0.05 * octaves(k.fusion_threshold_bytes, 64 << 20) + 0.1 * octaves(k.chunk_bytes, 256 << 10) +
                 0.002 * k.coalescing_us);
}

// Where a wrong choice is hardest to see: everything else costs 3.5 % more.
double barely_best_by_default(const Knobs& k) { return k == kDefaults ? 0.01 : 0.01035; }

double best_elsewhere(const Knobs& k) {
  return 0.01 * (1 + 0.1 * octaves(k.fusion_threshold_bytes, 4 << 20) + 0.15 * octaves(k.chunk_bytes, 128 << 10));
}
const Knobs kElsewhere{.fusion_threshold_bytes = 4 << 20, .coalescing_us = 0, .chunk_bytes = 128 << 10};

// Large chunks are a disaster; little fusion is a gain.
double cliff(const Knobs& k) {
  return 0.01 * (k.chunk_bytes > 256 << 10 ? 3 : 1) * (k.fusion_threshold_bytes <= 4 << 20 ? 0.7 : 1);
}

struct CostSurface {
  const char* name;
  double (*seconds)(const Knobs&);
};
const CostSurface kSurfaces[] = {{"flat", flat},
                                 {"best by default", best_by_default},
                                 {"barely best by default", barely_best_by_default},
                                 {"best elsewhere", best_elsewhere},
                                 {"cliff", cliff}};

// How long a step takes, relative to the defaults.
double relative(const CostSurface& surface, const Knobs& knobs) {
  return surface.seconds(knobs) / surface.seconds(kDefaults);
}

}  // namespace

TEST_CASE("Without noise the best knobs are found, and the defaults stay where nothing is better") {
  for (const AutotunerOptions& options : {kTwoKnobs, kThreeKnobs}) {
    CAPTURE(options.ranges.size());
    CHECK(tune(options, {flat, {}, 0}).knobs == kDefaults);
    CHECK(tune(options, {best_by_default, {}, 0}).knobs == kDefaults);
    CHECK(tune(options, {barely_best_by_default, {}, 0}).knobs == kDefaults);
    const Tuned tuned = tune(options, {best_elsewhere, {}, 0});
    CHECK(tuned.knobs == kElsewhere);
    CHECK(tuned.steps <= kMaxSteps);
  }
}

TEST_CASE("A knob that depends on another is tried again after the other one has changed") {
  // Small chunks are good only where there is little fusion, and little fusion only by itself.
  const auto entangled = [](const Knobs& k) {
    const bool little = k.fusion_threshold_bytes <= 16 << 20;
    return 0.01 * (little ? 0.9 : 1) * (k.chunk_bytes == 64 << 10 ? (little ? 0.6 : 2) : 1);
  };
  const AutotunerOptions chunks_first = options_for({&Knobs::chunk_bytes, &Knobs::fusion_threshold_bytes});
  const Tuned tuned = tune(chunks_first, {entangled, {}, 0});
  CHECK(tuned.knobs.chunk_bytes == 64 << 10);
  CHECK(tuned.knobs.fusion_threshold_bytes <= 16 << 20);
}

TEST_CASE("Whatever the noise, it ends in time and the job is not slower than with the defaults") {
  struct Row {
    Noise noise;
    unsigned most_slower;  // by more than 3 %, of all seeds: noise alone wins a comparison once in 315 times
  };
  const Row rows[] = {{kQuiet, 0}, {kLoud, kSeeds / 1000}};
  for (const AutotunerOptions& options : {kTwoKnobs, kThreeKnobs}) {
    for (const CostSurface& surface : kSurfaces) {
      for (const Row& row : rows) {
        CAPTURE(options.ranges.size(), surface.name, row.noise.amplitude);
        unsigned slower = 0;
        int most_steps = 0;
        for (unsigned seed = 0; seed < kSeeds; ++seed) {
          const Tuned tuned = tune(options, {surface.seconds, row.noise, seed});
          if (relative(surface, tuned.knobs) > 1.03) ++slower;
          most_steps = std::max(most_steps, tuned.steps);
        }
        CHECK(slower <= row.most_slower);
        CHECK(most_steps <= kMaxSteps);
      }
    }
  }
}

TEST_CASE("What is clearly better is found in noise") {
  struct Row {
    CostSurface surface;
    Noise noise;
    double most;  // relative time, mean over the seeds; the best that there is: 0.645 and 0.7
  };
  const Row rows[] = {
      {{"best elsewhere", best_elsewhere}, kQuiet, 0.65},
      {{"best elsewhere", best_elsewhere}, kLoud, 0.69},
      {{"cliff", cliff}, kQuiet, 0.71},
      {{"cliff", cliff}, kLoud, 0.72},
  };
  for (const AutotunerOptions& options : {kTwoKnobs, kThreeKnobs}) {
    for (const Row& row : rows) {
      CAPTURE(options.ranges.size(), row.surface.name, row.noise.amplitude);
      double total = 0;
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        total += relative(row.surface, tune(options, {row.surface.seconds, row.noise, seed}).knobs);
      }
      CHECK(total / kSeeds <= row.most);
    }
  }
}

TEST_CASE("A machine that becomes slower meanwhile does not make the defaults look bad") {
  // Each step takes 1 % more than the one before, whatever the knobs.
  Autotuner autotuner(kThreeKnobs);
  double taken = 0.01;
  for (int step = 0; step < kMaxSteps && !autotuner.finished(); ++step, taken *= 1.01) {
    autotuner.step(kStepBytes, std::chrono::duration_cast<Duration>(std::chrono::duration<double>(taken)));
  }
  CHECK(autotuner.finished());
  CHECK(autotuner.knobs() == kDefaults);
}

TEST_CASE("The same steps give the same samples and the same knobs") {
  const Tuned first = tune(kThreeKnobs, {best_elsewhere, kLoud, 42});
  const Tuned second = tune(kThreeKnobs, {best_elsewhere, kLoud, 42});
  CHECK(first.knobs == second.knobs);
  CHECK(first.steps == second.steps);
  REQUIRE(first.samples.size() == second.samples.size());
  for (std::size_t i = 0; i < first.samples.size(); ++i) {
    CHECK(tuning_log_row(first.samples[i]) == tuning_log_row(second.samples[i]));
  }
}

TEST_CASE("A knob without a range keeps its default in all samples") {
  const Tuned tuned = tune(options_for({&Knobs::chunk_bytes}), {best_elsewhere, kQuiet, 1});
  for (const TuningSample& sample : tuned.samples) {
    CHECK(sample.knobs.fusion_threshold_bytes == kDefaults.fusion_threshold_bytes);
    CHECK(sample.knobs.coalescing_us == kDefaults.coalescing_us);
  }
  CHECK(tuned.knobs.chunk_bytes == 128 << 10);
}

TEST_CASE("Nothing to tune, nothing to do") {
  Autotuner autotuner({.defaults = kDefaults});
  CHECK(autotuner.finished());
  CHECK(autotuner.knobs() == kDefaults);
  CHECK_FALSE(autotuner.step(kStepBytes, 10ms).has_value());
}

TEST_CASE("A range without the default is refused") {
  CHECK_THROWS_AS(Autotuner({.defaults = kDefaults, .ranges = {{&Knobs::chunk_bytes, {4096, 8192}}}}), InvalidArgument);
}

TEST_CASE("The phases follow each other, and samples are numbered") {
  using Phase = TuningSample::Phase;
  const Tuned tuned = tune(kTwoKnobs, {best_elsewhere, {}, 0});
  int number = 0;
  std::vector<int> counts(3);
  Phase last = Phase::warm_up;
  for (const TuningSample& sample : tuned.samples) {
    CHECK(sample.number == ++number);
    CHECK(sample.phase >= last);
    last = sample.phase;
    ++counts[static_cast<std::size_t>(sample.phase)];
    if (sample.phase == Phase::warm_up) CHECK(sample.knobs == kDefaults);
    if (sample.phase == Phase::comparison) CHECK((sample.knobs == kDefaults || sample.knobs == kElsewhere));
    CHECK(sample.seconds_per_step == Approx(best_elsewhere(sample.knobs)));
    CHECK(sample.seconds_per_byte == Approx(best_elsewhere(sample.knobs) / kStepBytes));
  }
  // Both knobs change, then the first is looked at again: three races of six.
  CHECK(counts == std::vector<int>{3, 18, 2 * Comparison::kPairs});
}

TEST_CASE("The options set how many samples and steps there are") {
  AutotunerOptions options = kTwoKnobs;
  options.warmup_samples = 1;
  options.steps_per_sample = 2;
  options.max_samples = 6;  // one race
  const Tuned tuned = tune(options, {best_elsewhere, {}, 0});
  CHECK(tuned.samples.size() == 1 + 6 + 2 * Comparison::kPairs);
  CHECK(tuned.knobs.fusion_threshold_bytes == kElsewhere.fusion_threshold_bytes);
  CHECK(tuned.knobs.chunk_bytes == kDefaults.chunk_bytes);

  options.max_samples = 5;
  CHECK(tune(options, {best_elsewhere, {}, 0}).samples.size() == 1);
  options.warmup_samples = 0;
  CHECK(tune(options, {best_elsewhere, {}, 0}).steps == 0);
}

TEST_CASE("The first step with new knobs does not count, nor does one without bytes or time") {
  AutotunerOptions options = kTwoKnobs;
  options.warmup_samples = 1;
  Autotuner autotuner(options);
  CHECK_FALSE(autotuner.step(kStepBytes, 10s));  // the very first one
  CHECK_FALSE(autotuner.step(kStepBytes, 10ms));
  CHECK_FALSE(autotuner.step(0, 10ms));
  CHECK_FALSE(autotuner.step(kStepBytes, 0ms));
  CHECK_FALSE(autotuner.step(kStepBytes, 12ms));
  const auto warm_up = autotuner.step(kStepBytes, 11ms);
  REQUIRE(warm_up);
  CHECK(warm_up->seconds_per_step == 0.011);
  // The search begins with the defaults: no change, and no step lost.
  CHECK(autotuner.knobs() == kDefaults);
  for (int i = 0; i < 2; ++i) CHECK_FALSE(autotuner.step(kStepBytes, 11ms));
  CHECK(autotuner.step(kStepBytes, 11ms).has_value());
  CHECK(autotuner.knobs() != kDefaults);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(autotuner.step(kStepBytes, 11ms));
  CHECK(autotuner.step(kStepBytes, 11ms).has_value());
}
