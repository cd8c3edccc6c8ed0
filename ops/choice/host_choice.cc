#include "ops/choice/host_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hvd {

namespace {

const char* form_reason(HostForm form) {
  switch (form) {
    case HostForm::inline_payload:
      return "fits beside the step's number, into the cache line that everyone waits for anyway";
    case HostForm::by_last: return "fewer CPUs than ranks: the last to come reduces everything for all";
    case HostForm::one_step: return "one barrier a chunk: everyone reduces everything";
    case HostForm::sliced: return "each rank reduces a slice for all: one more barrier a chunk, but fewer bytes read";
    case HostForm::resident: return "if all tensors lie in the arena: two passes over the data instead of five";
    case HostForm::reading: return "if the first few of a size show that accessing the others' memory is faster";
  }
  return "";
}

constexpr std::int64_t kSmallMoveBytes = 256 << 10;
constexpr double kHiddenCost = 1.15;

// By DataPath, as displayed.
constexpr std::array kPathNames{"chunks", "reading", "streaming"};
constexpr std::array kPathTexts{" in chunks", " by accessing each other's memory",
                                " in chunks with outputs that bypass the caches"};

// The sizes from which the form may be another one, ascending, from 1 on.
std::vector<std::size_t> form_limits(const HostShape& host) {
  std::vector<std::size_t> limits{1,
                                  kHostPayloadBytes + 1,
                                  kOneStepBytes + 1,
                                  kByLastBytes + 1,
                                  kPeerAccessBytes,
                                  static_cast<std::size_t>(allreduce_reading_bytes(host))};
  for (const auto& range : host.wanted) {
    limits.push_back(std::max(range.from, std::size_t{1}));
    if (range.to != kNoLimit) limits.push_back(range.to);
  }
  std::ranges::sort(limits);
  const auto repeated = std::ranges::unique(limits);
  limits.erase(repeated.begin(), repeated.end());
  return limits;
}

// Adds the sizes whose form differs from that of PeerAccess::window; for PeerAccess::window, all sizes.
void add_lines(std::vector<TableLine>& lines, const HostShape& host, PeerAccess access) {
  bool continues = false;  // the last line, if its name and reason are the same
  for (const std::size_t bytes : form_limits(host)) {
    const HostForm form = choose_host_form(host, static_cast<std::int64_t>(bytes), access);
    const auto* wanted = find_range(host.wanted, bytes);
    const std::string reason = wanted != nullptr && wanted->algorithm == form ? kWantedReason : form_reason(form);
    const std::size_t from = bytes == 1 ? 0 : bytes;
    if (continues) lines.back().to = from;
    continues = continues && lines.back().name == form_name(form) && lines.back().reason == reason;
    if (continues) {
      lines.back().to = kNoLimit;
    } else if (access == PeerAccess::window || form != choose_host_form(host, static_cast<std::int64_t>(bytes))) {
      lines.push_back({.from = from, .to = kNoLimit, .name = form_name(form), .reason = reason});
      continues = true;
    }
  }
}

}  // namespace

std::vector<TableLine> host_form_lines(const HostShape& host) {
  if (host.ranks == 1) return {{.name = "alone", .reason = "one rank: scaled and rounded where it is"}};
  std::vector<TableLine> lines;
  add_lines(lines, host, PeerAccess::window);
  if (host.arena) add_lines(lines, host, PeerAccess::arena);
  if (host.reading) add_lines(lines, host, PeerAccess::memory);
  return lines;
}

std::string host_form_text(const HostShape& host, bool others_wanted) {
  const std::string ranks =
      host.ranks == 1 ? "one rank" : std::to_string(host.ranks) + " ranks of a host, through shared memory";
  std::string text = "allreduce by size in bytes, " + ranks + ":\n" + table_text(host_form_lines(host));
  if (others_wanted) return text + "  HVD_ALGORITHM names algorithms between hosts, which are not used here";
  text.pop_back();
  return text;
}

bool PathTrials::Alternatives::any() const { return peer_memory || window_streaming; }

bool PathTrials::Alternatives::has(DataPath path) const {
  return path == DataPath::window || (path == DataPath::peer_memory && peer_memory) ||
         (path == DataPath::window_streaming && window_streaming);
}

std::size_t PathTrials::index_of(std::int64_t bytes) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes)));
}

// Returns the first path, `from` or later, that takes part in the round; kPaths if there is none.
std::size_t PathTrials::next_path(const Size& size, std::size_t from, Alternatives alternatives) {
  std::size_t path = from;
  for (; path < kPaths; ++path) {
    const bool waits = size.round == 0 && static_cast<DataPath>(path) == DataPath::window_streaming;
    if (!size.dropped[path] && !waits && alternatives.has(static_cast<DataPath>(path))) break;
  }
  return path;
}

PathTrials::Choice PathTrials::choose(std::int64_t bytes, Alternatives alternatives) const {
  const Size& size = sizes_[index_of(bytes)];
  if (size.round == kRounds) return {.path = alternatives.has(size.chosen) ? size.chosen : DataPath::window};
  const std::size_t path = next_path(size, size.next, alternatives);
  if (path == kPaths) return {};
  return {.path = static_cast<DataPath>(path),
          .is_trial = true,
          .ends_round = next_path(size, path + 1, alternatives) == kPaths};
}

bool PathTrials::took(std::int64_t bytes, const Choice& choice, double seconds) {
  Size& size = sizes_[index_of(bytes)];
  const auto path = static_cast<std::size_t>(choice.path);
  size.next = path + 1;
  double& fastest = size.fastest[path];
  if (size.round > 0) fastest = fastest > 0 ? std::min(fastest, seconds) : seconds;
  if (choice.ends_round) end_round(size, bytes);
  return size.round == kRounds;
}

void PathTrials::end_round(Size& size, std::int64_t bytes) {
  size.next = 0;
  if (size.round++ == 0) return;
  const auto cost = [&](std::size_t path) {
    if (size.fastest[path] == 0) return std::numeric_limits<double>::infinity();
    // Trials are calls on their own. What reads outputs next does not find them in a cache; and where small calls
    // follow each other, each finds the window's lines in the other ranks' caches.
    const bool is_dearer = static_cast<DataPath>(path) == DataPath::window_streaming ||
                           (static_cast<DataPath>(path) == DataPath::window && bytes < kSmallMoveBytes);
    return size.fastest[path] * (is_dearer ? kHiddenCost : 1.0);
  };
  std::size_t best = 0;
  for (std::size_t path = 1; path < kPaths; ++path) best = cost(path) < cost(best) ? path : best;
  size.chosen = static_cast<DataPath>(best);
  for (std::size_t path = 0; path < kPaths; ++path) {
    size.dropped[path] = size.dropped[path] || cost(path) >= 2 * cost(best);
  }
  if (std::ranges::count(size.dropped, false) == 1) size.round = kRounds;
}

std::string PathTrials::decision_text(const char* collective, std::int64_t bytes) const {
  const std::size_t octave = index_of(bytes);
  const Size& size = sizes_[octave];
  std::string text =
      std::string(collective) + " of " + range_text(std::size_t{1} << (octave - 1), std::size_t{1} << octave) +
      " bytes in shared memory: " + kPathNames[static_cast<std::size_t>(size.chosen)] + ", since it takes";
  const char* separator = " ";
  for (std::size_t path = 0; path < kPaths; ++path) {
    if (size.fastest[path] == 0) continue;
    text += separator + time_text(size.fastest[path]) + kPathTexts[path];
    separator = ", ";
  }
  return text;
}

PathTrials::Alternatives streaming_alternative(const HostShape& host, std::int64_t bytes) {
  return {.window_streaming = host.non_temporal_stores && bytes >= kStreamingBytes};
}

PathTrials::Alternatives allreduce_alternatives(const HostShape& host, std::int64_t bytes) {
  PathTrials::Alternatives alternatives = streaming_alternative(host, bytes);
  alternatives.peer_memory = host.reading && bytes >= allreduce_reading_bytes(host);
  return alternatives;
}

PathTrials::Alternatives move_alternatives(const HostShape& host, std::int64_t bytes) {
  PathTrials::Alternatives alternatives = streaming_alternative(host, bytes);
  alternatives.peer_memory =
      host.reading && bytes >= (host.oversubscribed ? kOversubscribedReadingBytes : kMoveReadingBytes);
  return alternatives;
}

CopyTrials::StoreKind CopyTrials::better() const {
  // Requires a factor of two: streamed data is more expensive to read.
  return cost_[1] > 0 && 2 * cost_[1] < cost_[0] ? StoreKind::non_temporal : StoreKind::plain;
}

CopyTrials::StoreKind CopyTrials::choose() {
  const StoreKind kind = better();
  if (++chunks_ % kTrial != 0) return kind;
  return kind == StoreKind::plain ? StoreKind::non_temporal : StoreKind::plain;
}

void CopyTrials::took(StoreKind kind, double seconds_per_byte) {
  double& cost = cost_[static_cast<std::size_t>(kind)];
  // An interrupted copy is not representative: a cost counts as twice the usual at most.
  cost = cost > 0 ? (cost + std::min(seconds_per_byte, 2 * cost)) / 2 : seconds_per_byte;
}

}  // namespace hvd
