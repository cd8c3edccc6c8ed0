// The forms of an allreduce inside a host (ops/host/collectives.h), and the choice between them. Pure.
// host_allreduce() and the table for users both call it, so that they cannot differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/futex.h"
#include "ops/choice/table_text.h"

namespace hvd {

// What fits beside the number of a step of the window (ops/host/window.h).
inline constexpr std::size_t kHostNoteBytes = Signal::kPayloadBytes;

enum class HostForm { note, by_last, one_step, sliced, resident, reading };

// How every rank can access all others' tensors: chunk by chunk in the window only; in the arena; or in their memory,
// where that proved faster (FormTrials).
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

  if (bytes <= static_cast<std::int64_t>(kHostNoteBytes)) return HostForm::note;
  if (reach_matters(bytes) && reach == Reach::arena) return HostForm::resident;
  if (reach_matters(bytes) && reach == Reach::memory) return HostForm::reading;
  if (host.oversubscribed && bytes <= kByLastBytes) return HostForm::by_last;
  if (host.ranks == 2 || (bytes <= kOneStepBytes && host.ranks <= kOneStepRanks)) return HostForm::one_step;
  return HostForm::sliced;
}

// All sizes with their forms.
std::vector<TableLine> host_form_lines(const HostShape& host);

// Chooses the faster of two forms of a collective for messages of a size, by trying both: through shared memory in
// chunks, or by reading the other ranks' memory directly. On machines where memory is the bottleneck the second moves
// fewer bytes; where the chunks stay in caches the first is faster.
//
// For each power of two the first calls alternate between the forms, then the ranks add up their costs and use the
// cheaper form. Both produce the same bits. All ranks call in the same order and agree on the costs, so all of them
// choose the same form.
//
// Pure; the caller measures the time.
class FormTrials {
 public:
  enum class Form { chunks, reading };
  using Costs = std::array<double, 2>;  // seconds, by form

  struct Choice {
    Form form;
    bool is_trial;         // to be measured
    bool is_last = false;  // afterwards the ranks must agree on costs()
  };

  // Returns the form of the next call of that many bytes.
  Choice choose(std::int64_t bytes);
  // Undoes choose() for a call that does not take place.
  void take_back(std::int64_t bytes);
  void took(std::int64_t bytes, Form form, double seconds);
  // The costs on this rank.
  Costs costs(std::int64_t bytes) const;
  void agree(std::int64_t bytes, const Costs& of_all_ranks);

 private:
  static constexpr int kTrials = 4;  // per form, of which the first, into cold memory, is ignored

  struct Size {
    int calls = 0;
    Costs best{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    Form chosen = Form::chunks;
  };

  static std::size_t index_of(std::int64_t bytes);

  std::array<Size, 64> sizes_{};
};

}  // namespace hvd
