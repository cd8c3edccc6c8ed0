#include "ops/choice/host_choice.h"

#include <algorithm>
#include <bit>

namespace hvd {

namespace {

const char* form_reason(HostForm form) {
  switch (form) {
    case HostForm::note: return "fits beside the step's number, into the cache line that everyone waits for anyway";
    case HostForm::by_last: return "fewer CPUs than ranks: the last to come reduces everything for all";
    case HostForm::one_step: return "one barrier a chunk: everyone reduces everything";
    case HostForm::sliced: return "each rank reduces a slice for all: one more barrier a chunk, but fewer bytes read";
    case HostForm::resident: return "if all tensors lie in the arena: two passes over the data instead of five";
    case HostForm::reading: return "if the first few of a size show that reading the others' memory is faster";
  }
  return "";
}

// The sizes from which the form may be another one, ascending, from 1 on.
std::vector<std::size_t> form_limits(const HostShape& host) {
  std::vector<std::size_t> limits{1, kHostNoteBytes + 1, kOneStepBytes + 1, kByLastBytes + 1, kReachBytes};
  for (const auto& range : host.wanted) {
    limits.push_back(std::max(range.from, std::size_t{1}));
    if (range.to != kNoLimit) limits.push_back(range.to);
  }
  std::ranges::sort(limits);
  const auto repeated = std::ranges::unique(limits);
  limits.erase(repeated.begin(), repeated.end());
  return limits;
}

// Adds the sizes whose form differs from that of Reach::chunks; for Reach::chunks, all sizes.
void add_lines(std::vector<TableLine>& lines, const HostShape& host, Reach reach) {
  bool continues = false;  // the last line, if its name and reason are the same
  for (const std::size_t bytes : form_limits(host)) {
    const HostForm form = choose_host_form(host, static_cast<std::int64_t>(bytes), reach);
    const auto* wanted = find_range(host.wanted, bytes);
    const std::string reason = wanted != nullptr && wanted->algorithm == form ? kWantedReason : form_reason(form);
    const std::size_t from = bytes == 1 ? 0 : bytes;
    if (continues) lines.back().to = from;
    continues = continues && lines.back().name == form_name(form) && lines.back().reason == reason;
    if (continues) {
      lines.back().to = kNoLimit;
    } else if (reach == Reach::chunks || form != choose_host_form(host, static_cast<std::int64_t>(bytes))) {
      lines.push_back({.from = from, .to = kNoLimit, .name = form_name(form), .reason = reason});
      continues = true;
    }
  }
}

}  // namespace

std::vector<TableLine> host_form_lines(const HostShape& host) {
  if (host.ranks == 1) return {{.name = "alone", .reason = "one rank: scaled and rounded where it is"}};
  std::vector<TableLine> lines;
  add_lines(lines, host, Reach::chunks);
  if (host.arena) add_lines(lines, host, Reach::arena);
  if (host.reading) add_lines(lines, host, Reach::memory);
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

std::size_t FormTrials::index_of(std::int64_t bytes) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes)));
}

FormTrials::Choice FormTrials::choose(std::int64_t bytes) {
  Size& size = sizes_[index_of(bytes)];
  if (size.calls >= 2 * kTrials) return {.form = size.chosen, .is_trial = false};
  const int call = size.calls++;
  return {.form = call % 2 == 0 ? Form::chunks : Form::reading, .is_trial = true, .is_last = size.calls == 2 * kTrials};
}

void FormTrials::take_back(std::int64_t bytes) { --sizes_[index_of(bytes)].calls; }

void FormTrials::took(std::int64_t bytes, Form form, double seconds) {
  Size& size = sizes_[index_of(bytes)];
  if (size.calls <= 2) return;
  double& best = size.best[static_cast<std::size_t>(form)];
  best = std::min(best, seconds);
}

FormTrials::Costs FormTrials::costs(std::int64_t bytes) const { return sizes_[index_of(bytes)].best; }

std::string FormTrials::agree(const char* collective, std::int64_t bytes, const Costs& of_all_ranks) {
  const std::size_t octave = index_of(bytes);
  const bool reading = of_all_ranks[1] < of_all_ranks[0];
  sizes_[octave].chosen = reading ? Form::reading : Form::chunks;
  return std::string(collective) + " of " + range_text(std::size_t{1} << (octave - 1), std::size_t{1} << octave) +
         " bytes in shared memory: " + (reading ? "reading" : "chunks") + ", since the ranks' times add up to " +
         time_text(of_all_ranks[1]) + " by reading each other's memory, " + time_text(of_all_ranks[0]) + " in chunks";
}

CopyTrials::Way CopyTrials::better() const {
  // Requires a factor of two: streamed data is more expensive to read.
  return cost_[1] > 0 && 2 * cost_[1] < cost_[0] ? Way::streaming : Way::plain;
}

CopyTrials::Way CopyTrials::choose() {
  const Way way = better();
  if (++chunks_ % kTrial != 0) return way;
  return way == Way::plain ? Way::streaming : Way::plain;
}

void CopyTrials::took(Way way, double seconds_per_byte) {
  double& cost = cost_[static_cast<std::size_t>(way)];
  // An interrupted copy is not representative: a cost counts as twice the usual at most.
  cost = cost > 0 ? (cost + std::min(seconds_per_byte, 2 * cost)) / 2 : seconds_per_byte;
}

}  // namespace hvd
