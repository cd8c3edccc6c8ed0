// The forms of an allreduce inside a host (host_communicator.h), and which messages take which. Pure: HostCommunicator
// asks it, and the lines for people are found by asking it too, so that the two cannot differ.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/choice/table_text.h"
#include "ops/host/window.h"

namespace hvd {

enum class HostForm { note, by_last, one_step, sliced, resident, reading };

// How every rank can reach all others' tensors: chunk by chunk in the window only; in the arena; or in their memory,
// and doing so has proved faster (form_trials.h).
enum class Reach { chunks, arena, memory };

// Below this, copies that stay in cache are as fast as a second barrier, and nobody need ask how tensors can be
// reached.
constexpr bool reach_matters(std::int64_t bytes) { return bytes >= 128 << 10; }

// A host's ranks.
struct HostShape {
  int ranks = 1;
  bool oversubscribed = false;  // there are fewer CPUs
  bool arena = false;           // there is one
  bool reading = false;         // ranks can read each other's memory
  bool groups = false;          // ranks near each other reduce first (domains.h)
};

// `bytes` of all tensors together, more than none, between two ranks or more. Inline, since the smallest allreduce
// takes less than 100 ns.
constexpr HostForm choose_host_form(const HostShape& host, std::int64_t bytes, Reach reach = Reach::chunks) {
  // Up to this, one rank is done before all have had another turn on a CPU.
  constexpr std::int64_t kByLastBytes = 32 << 10;
  // Up to these, waiting for each other once more costs more than reducing everything everywhere.
  constexpr std::int64_t kOneStepBytes = 16 << 10;
  constexpr int kOneStepRanks = 8;

  if (bytes <= static_cast<std::int64_t>(Window::kNoteBytes)) return HostForm::note;
  if (reach_matters(bytes) && reach == Reach::arena) return HostForm::resident;
  if (reach_matters(bytes) && reach == Reach::memory) return HostForm::reading;
  if (host.oversubscribed && bytes <= kByLastBytes) return HostForm::by_last;
  if (host.ranks == 2 || (bytes <= kOneStepBytes && host.ranks <= kOneStepRanks)) return HostForm::one_step;
  return HostForm::sliced;
}

// All sizes, and which form takes them.
std::vector<TableLine> host_form_lines(const HostShape& host);

}  // namespace hvd
