#include "ops/host/host_form.h"

namespace hvd {

namespace {

// No message is as long.
constexpr std::int64_t kFarAway = std::int64_t{1} << 40;

const char* form_name(HostForm form) {
  switch (form) {
    case HostForm::note: return "note";
    case HostForm::one_step: return "one_step";
    case HostForm::sliced: return "sliced";
    case HostForm::resident: return "resident";
  }
  return "unknown";
}

const char* form_reason(HostForm form) {
  switch (form) {
    case HostForm::note: return "fits beside the step's number, into the cache line that everyone waits for anyway";
    case HostForm::one_step: return "one meeting a chunk: everyone reduces everything";
    case HostForm::sliced:
      return "each rank reduces a slice and reads the others': one more meeting a chunk, fewer bytes";
    case HostForm::resident: return "where all tensors lie in the arena: two passes over the data instead of five";
  }
  return "";
}

// The first size above `bytes` that takes another form, or kFarAway. Forms follow each other with the size; none comes
// back.
std::int64_t next_change(int ranks, std::int64_t bytes, bool resident) {
  const HostForm form = choose_host_form(ranks, bytes, resident);
  if (choose_host_form(ranks, kFarAway, resident) == form) return kFarAway;
  std::int64_t same = bytes, other = kFarAway;
  while (other - same > 1) {
    const std::int64_t middle = same + (other - same) / 2;
    (choose_host_form(ranks, middle, resident) == form ? same : other) = middle;
  }
  return other;
}

}  // namespace

std::vector<TableLine> host_form_lines(int ranks, bool arena) {
  if (ranks == 1) return {{.name = "alone", .reason = "one rank: scaled and rounded where it is"}};
  std::vector<TableLine> lines;
  for (const bool resident : {false, true}) {
    if (resident && !arena) break;
    for (std::int64_t bytes = 1; bytes < kFarAway;) {
      const HostForm form = choose_host_form(ranks, bytes, resident);
      const std::int64_t change = next_change(ranks, bytes, resident);
      // Of those that are asked with tensors in the arena, what is new.
      if (!resident || form == HostForm::resident) {
        lines.push_back({.from = bytes == 1 ? 0 : static_cast<std::size_t>(bytes),
                         .to = change == kFarAway ? kNoLimit : static_cast<std::size_t>(change),
                         .name = form_name(form),
                         .reason = form_reason(form)});
      }
      bytes = change;
    }
  }
  return lines;
}

}  // namespace hvd
