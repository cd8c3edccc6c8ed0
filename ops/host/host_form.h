// The forms of an allreduce inside a host (host_group.h), and which messages take which. Pure: HostGroup asks it, and
// the lines for people are found by asking it too, so that the two cannot differ.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/choice/table_text.h"
#include "ops/host/window.h"

namespace hvd {

enum class HostForm { note, one_step, sliced, resident };

// `bytes` of all tensors together, more than none, between two ranks or more. `resident`: all of them lie in the arena
// on all ranks; nobody need ask where they lie unless the answer could be HostForm::resident. Inline, since the
// smallest allreduce takes less than 100 ns.
constexpr HostForm choose_host_form(int ranks, std::int64_t bytes, bool resident) {
  // Below these, waiting for each other once more costs more than reducing everything everywhere.
  constexpr std::int64_t kOneStepBytes = 16 << 10;
  constexpr int kOneStepRanks = 8;
  // Below this, a copy into the window that stays in cache is as fast as a second meeting.
  constexpr std::int64_t kResidentBytes = 128 << 10;

  if (bytes <= static_cast<std::int64_t>(Window::kNoteBytes)) return HostForm::note;
  if (resident && bytes >= kResidentBytes) return HostForm::resident;
  if (ranks == 2 || (bytes <= kOneStepBytes && ranks <= kOneStepRanks)) return HostForm::one_step;
  return HostForm::sliced;
}

// All sizes, and which form takes them, between so many ranks with or without an arena.
std::vector<TableLine> host_form_lines(int ranks, bool arena);

}  // namespace hvd
