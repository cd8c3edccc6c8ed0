// The forms of an allreduce inside a host (host_communicator.h), and the choice between them. Pure. HostCommunicator
// and the table for users both call it, so that they cannot differ.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/choice/table_text.h"
#include "ops/host/window.h"

namespace hvd {

enum class HostForm { note, by_last, one_step, sliced, resident, reading };

// How every rank can access all others' tensors: chunk by chunk in the window only; in the arena; or in their memory,
// where that proved faster (form_trials.h).
enum class Reach { chunks, arena, memory };

// Below this size, copies that stay in cache are as fast as a second barrier, and the ranks need not exchange how their
// tensors can be accessed.
constexpr bool reach_matters(std::int64_t bytes) { return bytes >= 128 << 10; }

// The properties of a host's ranks.
struct HostShape {
  int ranks = 1;
  bool oversubscribed = false;  // fewer CPUs than ranks
  bool arena = false;           // there is an arena
  bool reading = false;         // ranks can read each other's memory
};

// `bytes`: of all tensors together, more than 0, with at least two ranks. Inline, since the smallest allreduce takes
// less than 100 ns.
constexpr HostForm choose_host_form(const HostShape& host, std::int64_t bytes, Reach reach = Reach::chunks) {
  // Up to this size, one rank is done before all others have been scheduled again.
  constexpr std::int64_t kByLastBytes = 32 << 10;
  // Up to these limits, one more wait for each other costs more than reducing everything on every rank.
  constexpr std::int64_t kOneStepBytes = 16 << 10;
  constexpr int kOneStepRanks = 8;

  if (bytes <= static_cast<std::int64_t>(Window::kNoteBytes)) return HostForm::note;
  if (reach_matters(bytes) && reach == Reach::arena) return HostForm::resident;
  if (reach_matters(bytes) && reach == Reach::memory) return HostForm::reading;
  if (host.oversubscribed && bytes <= kByLastBytes) return HostForm::by_last;
  if (host.ranks == 2 || (bytes <= kOneStepBytes && host.ranks <= kOneStepRanks)) return HostForm::one_step;
  return HostForm::sliced;
}

// All sizes with their forms.
std::vector<TableLine> host_form_lines(const HostShape& host);

}  // namespace hvd
