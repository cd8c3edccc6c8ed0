// The choice of algorithm for an allreduce by size and number of ranks, with reasons. Pure.
//
// The user's ranges take precedence (algorithm_ranges.h); all other sizes use the algorithm that the cost model
// (cost_model.h) finds fastest at the lower end of a quarter of an octave, so that limits are round numbers. Where
// results must not depend on the chosen algorithm, algorithms that change the bits are excluded.
//
// Depends only on values that all ranks agree on, so it is the same on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/choice/algorithm_ranges.h"
#include "ops/choice/cost_model.h"

namespace hvd {

// The inputs of the choice; equal on all ranks.
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

  // `widening` as in AllreduceSize.
  AlgorithmTable(const SelectionInput& facts, int ranks, int widening);

  AllreduceAlgorithm lookup(std::size_t bytes) const;

  // From 0 to kNoLimit without gaps.
  const std::vector<Range>& ranges() const { return ranges_; }
  std::string text() const;

 private:
  const bool deterministic_;
  const std::vector<Range> ranges_;
};

// The tables of a job, each created at its first use; the ChooseAllreduce of backends. One thread.
class AllreduceChoice {
 public:
  explicit AllreduceChoice(SelectionInput facts);

  AllreduceAlgorithm operator()(const AllreduceSize& size);
  const AlgorithmTable& table(int ranks, int widening);
  // The time of the chosen algorithm.
  double predicted_seconds(const AllreduceSize& size);

  // For display, without a newline at the end: the algorithms of allreduces between this number of hosts, or ranks, and
  // the measured costs.
  std::string text(int ranks, bool between_hosts);

 private:
  const SelectionInput facts_;
  std::map<std::pair<int, int>, AlgorithmTable> tables_;  // by ranks and widening
};

// Inside a host, costs per byte do not fall any further above this (measured: 160 gradients of 102 MB at 2 ranks take
// 18.8 ms in buckets of 8 MiB and 21.4 ms in buckets of 64 MiB, which exceed the caches).
inline constexpr std::int64_t kHostBucketBytes = std::int64_t{8} << 20;
inline constexpr std::int64_t kMaxBucketBytes = std::int64_t{64} << 20;

// Chooses how many bytes of small tensors to reduce together: a larger bucket costs less per byte, but starts later,
// and cannot be overtaken. Returns the same on every rank: the size above which a byte of an allreduce between `ranks`
// ranks costs hardly more than in the largest bucket.
std::int64_t bucket_bytes(AllreduceChoice& choice, int ranks);

}  // namespace hvd
