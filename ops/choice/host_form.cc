#include "ops/choice/host_form.h"

#include <algorithm>

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
  if (others_wanted) return text + "  HVD_ALGORITHM also names algorithms between hosts, which are not used here";
  text.pop_back();
  return text;
}

}  // namespace hvd
