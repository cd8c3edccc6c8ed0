// What the work of a node costs on its own processor.
//
// Work is always done by the real classes; how long it takes in the simulated job is either what a model says (or
// nothing), so that a run can be repeated, or what the real work took here, from which the model has its numbers.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/base/clock.h"

namespace hvd::simulation {

enum class Work : std::uint8_t {
  announce,    // a rank looks up what it asks for, and writes it
  hear,        // a node compares a message from below with others, or reads it
  gather,      // what differs, or a part of it, goes to the RequestAggregator
  pass_up,     // and is written when it is due
  coordinate,  // the coordinator takes in what ranks ask for
  answer,      // and makes and writes its answer
  apply,       // a rank reads an answer, and takes it into its cache and into buckets
  follow,      // a rank goes through a step of a locked schedule
};
inline constexpr std::size_t kWorks = 8;
const char* work_name(Work work);

// How much of it.
struct Amount {
  std::size_t messages = 0;
  std::size_t requests = 0;  // or whole responses
  std::size_t hits = 0;      // or responses by number
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
  // Has the body do the work, and returns how long that takes.
  Duration perform(Work work, const std::function<Amount()>& body) {
    const Duration time = time_of(work, body);
    total_ += time;
    return time;
  }
  // Of all that was performed.
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

// As measured: docs/simulation.md says where and how.
extern const Costs kMeasuredCosts;

class ModelProcessor final : public Processor {
 public:
  explicit ModelProcessor(const Costs& costs) : costs_(costs) {}

 private:
  Duration time_of(Work work, const std::function<Amount()>& body) override;

  const Costs costs_;
};

// By this thread's processor time, so that what else the machine does counts less.
class Stopwatch final : public Processor {
 public:
  // The model that fits what was measured so far best.
  Costs fit() const;

 private:
  Duration time_of(Work work, const std::function<Amount()>& body) override;

  std::array<std::map<Amount, std::vector<double>>, kWorks> samples_;  // in nanoseconds
};

}  // namespace hvd::simulation
