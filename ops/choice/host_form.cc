#include "ops/choice/host_form.h"

#include <algorithm>
#include <bit>

namespace hvd {

namespace {

// Longer than any message.
constexpr std::int64_t kFarAway = std::int64_t{1} << 40;

const char* form_name(HostForm form) {
  switch (form) {
    case HostForm::note: return "note";
    case HostForm::by_last: return "by_last";
    case HostForm::one_step: return "one_step";
    case HostForm::sliced: return "sliced";
    case HostForm::resident: return "resident";
    case HostForm::reading: return "reading";
  }
  return "unknown";
}

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

// The first size above `bytes` that takes another form, or kFarAway. Each form covers one range of sizes.
std::int64_t next_change(const HostShape& host, std::int64_t bytes, Reach reach) {
  const HostForm form = choose_host_form(host, bytes, reach);
  if (choose_host_form(host, kFarAway, reach) == form) return kFarAway;
  std::int64_t same = bytes, other = kFarAway;
  while (other - same > 1) {
    const std::int64_t middle = same + (other - same) / 2;
    (choose_host_form(host, middle, reach) == form ? same : other) = middle;
  }
  return other;
}

// Adds the sizes whose form differs from that of Reach::chunks; for Reach::chunks, all sizes.
void add_lines(std::vector<TableLine>& lines, const HostShape& host, Reach reach) {
  for (std::int64_t bytes = 1; bytes < kFarAway;) {
    const HostForm form = choose_host_form(host, bytes, reach);
    const std::int64_t change = next_change(host, bytes, reach);
    if (reach == Reach::chunks || form != choose_host_form(host, bytes)) {
      lines.push_back({.from = bytes == 1 ? 0 : static_cast<std::size_t>(bytes),
                       .to = change == kFarAway ? kNoLimit : static_cast<std::size_t>(change),
                       .name = form_name(form),
                       .reason = form_reason(form)});
    }
    bytes = change;
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

void FormTrials::agree(std::int64_t bytes, const Costs& of_all_ranks) {
  sizes_[index_of(bytes)].chosen = of_all_ranks[1] < of_all_ranks[0] ? Form::reading : Form::chunks;
}

}  // namespace hvd
