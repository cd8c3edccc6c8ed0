// The cost of a node's work on its processor.
//
// The real classes always do the work; its duration in the simulated job is either predicted by a model (or zero), so
// that a run is repeatable, or measured here, which provides the numbers of the model.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <vector>

#include "core/base/clock.h"

namespace hvd::simulation {

enum class Work : std::uint8_t {
  request,     // a rank looks up its requests and encodes them
  receive,     // a node compares a message from a child with others, or decodes it
  aggregate,   // messages that differ, or parts of them, go to the RequestAggregator
  combine,     // which encodes them when they are due
  coordinate,  // the coordinator processes requests
  respond,     // and creates and encodes its responses
  apply,       // a rank decodes the responses and applies them to its cache and buckets
  follow,      // a rank performs a step of a locked schedule
};
inline constexpr const char* kWorkNames[] = {"request",    "receive", "aggregate", "combine",
                                             "coordinate", "respond", "apply",     "follow"};
inline constexpr std::size_t kWorks = std::size(kWorkNames);

// The amount of work.
struct Amount {
  std::size_t messages = 0;
  std::size_t requests = 0;  // or whole responses
  std::size_t hits = 0;      // or responses by cache slot
  std::size_t bytes = 0;     // compared

  auto operator<=>(const Amount&) const = default;
  Amount& operator+=(const Amount& other) {
    messages += other.messages;
    requests += other.requests;
    hits += other.hits;
    bytes += other.bytes;
    return *this;
  }
};

class Processor {
 public:
  virtual ~Processor() = default;
  // Runs the body and returns the duration of its work.
  Duration perform(Work work, const std::function<Amount()>& body) {
    const Duration time = time_of(work, body);
    total_ += time;
    return time;
  }
  // The sum over all performed work.
  Duration total() const { return total_; }

 private:
  virtual Duration time_of(Work work, const std::function<Amount()>& body) = 0;
  Duration total_{};
};

// In nanoseconds each.
struct Cost {
  double message = 0;
  double request = 0;
  double hit = 0;
  double byte = 0;

  double of(const Amount& amount) const;
};
using Costs = std::array<Cost, kWorks>;  // by Work

// Measured costs; docs/simulation.md describes where and how.
extern const Costs kMeasuredCosts;

class ModelProcessor final : public Processor {
 public:
  explicit ModelProcessor(const Costs& costs) : costs_(costs) {}

 private:
  Duration time_of(Work work, const std::function<Amount()>& body) override {
    const double nanoseconds = costs_[static_cast<std::size_t>(work)].of(body());
    return std::chrono::round<Duration>(std::chrono::duration<double, std::nano>(nanoseconds));
  }

  const Costs costs_;
};

// Measures this thread's CPU time, so that other load of the machine matters less.
class Stopwatch final : public Processor {
 public:
  // Returns the model that fits the measurements so far best.
  Costs fit() const;

 private:
  Duration time_of(Work work, const std::function<Amount()>& body) override;

  std::array<std::map<Amount, std::vector<double>>, kWorks> samples_;  // in nanoseconds
};

}  // namespace hvd::simulation
