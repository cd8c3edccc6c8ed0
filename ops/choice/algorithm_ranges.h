// Algorithms by size: ranges of sizes, the ranges in the user's HVD_ALGORITHM, and a table of ranges for display. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/algorithms/allreduce.h"

namespace hvd {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Messages of `from` or more, but fewer than `to`, bytes use the algorithm.
template <typename Algorithm>
struct SizeRange {
  std::size_t from, to;
  Algorithm algorithm;
};

// Returns the range that contains `bytes`, or null.
template <typename Algorithm>
const SizeRange<Algorithm>* find_range(std::span<const SizeRange<Algorithm>> ranges, std::size_t bytes) {
  for (const SizeRange<Algorithm>& range : ranges) {
    if (range.from <= bytes && bytes < range.to) return &range;
  }
  return nullptr;
}

// Why a range has the algorithm that the user has named.
inline constexpr const char* kWantedReason = "HVD_ALGORITHM says so";

// A line: `name` performs messages of `from` or more, but fewer than `to`, bytes.
struct TableLine {
  std::size_t from = 0, to = kNoLimit;
  std::string name;
  std::string reason;
};

// "112", "64k", "3m": in the format of HVD_ALGORITHM.
std::string size_text(std::size_t bytes);
// "0-64k", "64k-"
std::string range_text(std::size_t from, std::size_t to);
// "31 us", "1.3 ms", "2.5 s": two digits or more.
std::string time_text(double seconds);
// "117 MB/s", "9.3 GB/s"
std::string rate_text(double seconds_per_byte);

// The lines, indented, in columns.
std::string table_text(std::span<const TableLine> lines);

// How an allreduce inside a host uses shared memory (host_choice.h).
enum class HostForm { inline_payload, by_last, one_step, sliced, resident, reading };

const char* form_name(HostForm form);

// The forms that HVD_ALGORITHM may name. The others suit only sizes at which no form is faster.
inline constexpr HostForm kNamedForms[] = {HostForm::one_step, HostForm::sliced, HostForm::resident, HostForm::reading};

// The user's choice of algorithms: HVD_ALGORITHM, parsed.
//
//   HVD_ALGORITHM="allreduce:0-64k=direct;1m-=ring;0-=sliced"
//
// Messages from the first size up to, but not including, the second use the algorithm. Sizes are the sum over the
// tensors of a message, in bytes or with k, m or g (1024 bytes, and so on); a missing size is no limit. The name of an
// algorithm tells whether the range is about messages between hosts or about shared memory, in a job on one host
// (HostForm). The default choice applies outside the ranges.
struct AlgorithmOverride {
  // Ascending, without overlap.
  std::vector<SizeRange<AllreduceAlgorithm>> allreduce;
  std::vector<SizeRange<HostForm>> inside_host;

  // Returns the range between hosts that contains `bytes`, or null.
  const SizeRange<AllreduceAlgorithm>* find(std::size_t bytes) const;
};

// Throws InvalidArgument that quotes the text and lists what is allowed: for a syntax error, an unknown name, an empty
// range, overlapping ranges, or an algorithm that is not deterministic where determinism is required.
AlgorithmOverride parse_algorithm_override(std::string_view text, bool deterministic);

}  // namespace hvd
