// The forms of an allreduce inside a host (ops/host/allreduce_forms.h), and the choice between them. Pure.
// host_allreduce() and the table for users both call it, so that they cannot differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/futex.h"
#include "ops/choice/table_text.h"

namespace hvd {

enum class HostForm { note, by_last, one_step, sliced, resident, reading };

const char* form_name(HostForm form);

// The forms that HVD_ALGORITHM may name. The others suit only sizes at which no form is faster.
inline constexpr HostForm kNamedForms[] = {HostForm::one_step, HostForm::sliced, HostForm::resident, HostForm::reading};

// How every rank can access all others' tensors: chunk by chunk in the window only; in the arena; or in their memory,
// where that proved faster (trials.h).
enum class Reach { chunks, arena, memory };

// What fits beside the number of a step of the window (ops/host/window.h).
inline constexpr std::int64_t kHostNoteBytes = Signal::kPayloadBytes;
// Up to this size, one rank is done before all others have been scheduled again.
inline constexpr std::int64_t kByLastBytes = 32 << 10;
// Up to these limits, one more wait for each other costs more than reducing everything on every rank.
inline constexpr std::int64_t kOneStepBytes = 16 << 10;
inline constexpr int kOneStepRanks = 8;
// Below this size, copies that stay in cache are as fast as a second barrier, and the ranks need not exchange how their
// tensors can be accessed.
inline constexpr std::int64_t kReachBytes = 128 << 10;

constexpr bool reach_matters(std::int64_t bytes) { return bytes >= kReachBytes; }

// The properties of a host's ranks.
struct HostShape {
  int ranks = 1;
  bool oversubscribed = false;                    // fewer CPUs than ranks
  bool arena = false;                             // there is an arena
  bool reading = false;                           // ranks can read each other's memory
  std::span<const SizeRange<HostForm>> wanted{};  // by the user (algorithm_override.h)
};

// `bytes`: of all tensors together, more than 0, with at least two ranks. Where the form that the user wants is not
// possible, because of the reach, the choice is as without the user. Inline, since the smallest allreduce takes less
// than 100 ns.
inline HostForm choose_host_form(const HostShape& host, std::int64_t bytes, Reach reach = Reach::chunks) {
  if (bytes <= kHostNoteBytes) return HostForm::note;
  if (const auto* range = find_range(host.wanted, static_cast<std::size_t>(bytes))) {
    if (range->algorithm == HostForm::one_step || range->algorithm == HostForm::sliced) return range->algorithm;
  }
  if (reach_matters(bytes) && reach == Reach::arena) return HostForm::resident;
  if (reach_matters(bytes) && reach == Reach::memory) return HostForm::reading;
  if (host.oversubscribed && bytes <= kByLastBytes) return HostForm::by_last;
  if (host.ranks == 2 || (bytes <= kOneStepBytes && host.ranks <= kOneStepRanks)) return HostForm::one_step;
  return HostForm::sliced;
}

// All sizes with their forms, and why, for display.
std::vector<TableLine> host_form_lines(const HostShape& host);
// The table with its heading, without a newline at the end. `others_wanted`: the user has named algorithms between
// hosts, which are not used here.
std::string host_form_text(const HostShape& host, bool others_wanted);

}  // namespace hvd
