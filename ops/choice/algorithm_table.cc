#include "ops/choice/algorithm_table.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace hvd {

namespace {

// Sizes at which the choice may change: 0, and between these limits four sizes an octave.
constexpr std::size_t kSmallestLimit = 64;
constexpr std::size_t kLargestLimit = std::size_t{1} << 32;

constexpr std::int64_t kMinBucketBytes = std::int64_t{1} << 20;
constexpr double kGain = 1.05;  // a smaller gain is not worth waiting for
// Times that differ by less are equal but for rounding: between two ranks, one_shot and bruck send the same messages.
constexpr double kRounding = 1e-9;

// A representative size of the range: a power of two inside it, if there is one.
std::size_t typical_size(std::size_t from, std::size_t to) {
  if (to == kNoLimit) return std::max(from * 4, std::size_t{1} << 20);
  const int octave = (std::bit_width(std::max(from, std::size_t{1})) + std::bit_width(to)) / 2 - 1;
  return std::clamp(std::size_t{1} << octave, from, to - 1);
}

class Builder {
 public:
  Builder(const SelectionInput& facts, int ranks, int widening) : facts_(facts), ranks_(ranks), widening_(widening) {}
  std::vector<AlgorithmTable::Range> build() const {
    std::vector<AlgorithmTable::Range> ranges;
    const auto bounds = limits();
    for (auto bound = bounds.begin(); bound != bounds.end();) {
      const Choice choice = choose(*bound);
      const auto next = std::find_if(bound, bounds.end(), [&](std::size_t at) { return choose(at) != choice; });
      const std::size_t to = next == bounds.end() ? kNoLimit : *next;
      ranges.push_back({*bound, to, choice.algorithm, reason(choice, *bound, to)});
      bound = next;
    }
    return ranges;
  }

 private:
  // The algorithm for a size: from the user's range, or chosen by the model.
  struct Choice {
    AllreduceAlgorithm algorithm;
    bool wanted_by_user;
    bool operator==(const Choice&) const = default;
  };
  Choice choose(std::size_t bytes) const {
    if (const auto* wanted = facts_.override.find(bytes)) return {wanted->algorithm, true};
    return {fastest(bytes, std::nullopt).value(), false};
  }

  double seconds(AllreduceAlgorithm algorithm, std::size_t bytes) const {
    return predicted_seconds(algorithm, facts_.costs, {.bytes = bytes, .ranks = ranks_, .widening = widening_});
  }
  // Null if there is no algorithm other than `except`.
  std::optional<AllreduceAlgorithm> fastest(std::size_t bytes, std::optional<AllreduceAlgorithm> except) const {
    std::optional<AllreduceAlgorithm> best;
    for (const AllreduceAlgorithm candidate : kAllreduceAlgorithms) {
      if (candidate == except || (facts_.deterministic && !keeps_order(candidate))) continue;
      if (!best || seconds(candidate, bytes) < (1 - kRounding) * seconds(*best, bytes)) best = candidate;
    }
    return best;
  }

  std::vector<std::size_t> limits() const {
    std::vector<std::size_t> limits{0};
    for (std::size_t octave = kSmallestLimit; octave < kLargestLimit; octave *= 2) {
      for (std::size_t quarter = 4; quarter < 8; ++quarter) limits.push_back(octave / 4 * quarter);
    }
    for (const auto& range : facts_.override.allreduce) {
      limits.push_back(range.from);
      if (range.to != kNoLimit) limits.push_back(range.to);
    }
    std::ranges::sort(limits);
    const auto repeated = std::ranges::unique(limits);
    limits.erase(repeated.begin(), repeated.end());
    return limits;
  }

  std::string reason(const Choice& choice, std::size_t from, std::size_t to) const {
    if (choice.wanted_by_user) return kWantedReason;
    if (ranks_ == 1) return "one rank: nothing is sent";
    const std::size_t size = typical_size(from, to);
    const AllreduceAlgorithm second = fastest(size, choice.algorithm).value();
    return "least time by the cost model: " + time_text(seconds(choice.algorithm, size)) + " at " + size_text(size) +
           ", against " + time_text(seconds(second, size)) + " of " + algorithm_name(second);
  }

  const SelectionInput& facts_;
  const int ranks_, widening_;
};

std::string links_text(const LinkCosts& costs) {
  return "  links: " + time_text(costs.latency) + " a message, " + time_text(costs.per_message) +
         " for one more beside it, " + rate_text(costs.per_byte) + "; sums: " + rate_text(costs.reduce_per_byte);
}

}  // namespace

AlgorithmTable::AlgorithmTable(const SelectionInput& facts, int ranks, int widening)
    : deterministic_(facts.deterministic), ranges_(Builder(facts, ranks, widening).build()) {}

AllreduceAlgorithm AlgorithmTable::lookup(std::size_t bytes) const {
  const auto above = std::ranges::upper_bound(ranges_, bytes, {}, &Range::from);
  return std::prev(above)->algorithm;
}

std::string AlgorithmTable::text() const {
  std::vector<TableLine> lines;
  for (const Range& range : ranges_)
    lines.push_back({range.from, range.to, algorithm_name(range.algorithm), range.reason});
  std::string text = table_text(lines);
  for (const AllreduceAlgorithm algorithm : kAllreduceAlgorithms) {
    if (!deterministic_ || keeps_order(algorithm)) continue;
    text += "  nothing by " + std::string(algorithm_name(algorithm)) +
            ": it does not add in the order of the others (HVD_DETERMINISTIC=1)\n";
  }
  return text;
}

AllreduceChoice::AllreduceChoice(SelectionInput facts) : facts_(std::move(facts)) {}

AllreduceAlgorithm AllreduceChoice::operator()(const AllreduceSize& size) {
  return table(size.ranks, size.widening).lookup(size.bytes);
}

const AlgorithmTable& AllreduceChoice::table(int ranks, int widening) {
  const auto found = tables_.find({ranks, widening});
  if (found != tables_.end()) return found->second;
  return tables_.emplace(std::pair(ranks, widening), AlgorithmTable(facts_, ranks, widening)).first->second;
}

double AllreduceChoice::predicted_seconds(const AllreduceSize& size) {
  return hvd::predicted_seconds((*this)(size), facts_.costs, size);
}

std::string AllreduceChoice::text(int ranks, bool between_hosts) {
  const std::string unused =
      facts_.override.inside_host.empty() ? "" : "  HVD_ALGORITHM names forms inside a host, which are not used here\n";
  const std::string heading = "allreduce by size in bytes, " + std::to_string(ranks);
  if (between_hosts) {
    return heading + " hosts over TCP (inside each, ranks reduce in shared memory):\n" + table(ranks, 1).text() +
           unused + links_text(facts_.costs);
  }
  std::string text = heading + " ranks over TCP:\n" + table(ranks, 1).text();
  if (const std::string widened = table(ranks, 2).text(); widened != table(ranks, 1).text()) {
    text += "the same for float16 and bfloat16, whose partial sums are float32:\n" + widened;
  }
  return text + unused + links_text(facts_.costs);
}

std::int64_t bucket_bytes(AllreduceChoice& choice, int ranks) {
  const auto seconds_per_byte = [&](std::int64_t bytes) {
    return choice.predicted_seconds({.bytes = static_cast<std::size_t>(bytes), .ranks = ranks}) /
           static_cast<double>(bytes);
  };
  const double least = seconds_per_byte(kMaxBucketBytes);
  std::int64_t bytes = kMinBucketBytes;
  while (bytes < kMaxBucketBytes && seconds_per_byte(bytes) > kGain * least) bytes *= 2;
  return bytes;
}

}  // namespace hvd
