// Which algorithm serves an allreduce of which size between N ranks, and why. Pure.
//
// The user's ranges come first (algorithm_override.h); everything else goes to the algorithm that the cost model
// (cost_model.h) finds fastest at the lower end of a quarter of an octave, so that limits are round numbers. Where
// results must not depend on which algorithm ran, those that would show in the bits are left out.
//
// Made from nothing but what all ranks agree on, so it is the same on every rank.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/choice/algorithm_override.h"
#include "ops/choice/cost_model.h"
#include "ops/choice/table_text.h"

namespace hvd {

// What the choice is made from; equal on all ranks.
struct SelectionInput {
  LinkCosts costs;
  bool deterministic = true;
  AlgorithmOverride override = {};
};

class AlgorithmTable {
 public:
  struct Range {
    std::size_t from, to;
    AllreduceAlgorithm algorithm;
    std::string reason;
  };

  // `widening` is AllreduceSize's.
  AlgorithmTable(const SelectionInput& facts, int ranks, int widening);

  AllreduceAlgorithm lookup(std::size_t bytes) const;

  // From 0 to kNoLimit without a hole.
  const std::vector<Range>& ranges() const { return ranges_; }
  std::string text() const;

 private:
  const bool deterministic_;
  const std::vector<Range> ranges_;
};

// The tables of a job, each made when it is first needed: what a backend asks (ChooseAllreduce). One thread.
class AllreduceChoice {
 public:
  explicit AllreduceChoice(SelectionInput facts) : facts_(std::move(facts)) {}

  AllreduceAlgorithm operator()(const AllreduceSize& size) {
    return table(size.ranks, size.widening).lookup(size.bytes);
  }
  const AlgorithmTable& table(int ranks, int widening);
  // How long what serves an allreduce takes.
  double predicted_seconds(const AllreduceSize& size) {
    return hvd::predicted_seconds((*this)(size), facts_.costs, size);
  }

  // For people, without a newline at the end: what serves allreduces between so many hosts, or ranks, and what was
  // measured.
  std::string text(int ranks, bool between_hosts);

 private:
  const SelectionInput facts_;
  std::map<std::pair<int, int>, AlgorithmTable> tables_;  // by ranks and widening
};

}  // namespace hvd
