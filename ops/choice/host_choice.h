// What is chosen inside a host: the form of an allreduce by its size, and by trying while the job runs, whether ranks
// read each other's memory, and which stores copy into memory that others have read. Pure; the callers measure the
// time. host_allreduce() and the table for users call the same function, so that they cannot differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/base/futex.h"
#include "ops/choice/algorithm_ranges.h"

namespace hvd {

// How every rank can access all others' tensors: chunk by chunk in the window only; in the arena; or in their memory,
// where that proved faster (FormTrials).
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
  std::span<const SizeRange<HostForm>> wanted{};  // by the user
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

// Chooses the faster of two forms of a collective for messages of a size, by trying both: through shared memory in
// chunks, or by reading the other ranks' memory directly. On machines where memory is the bottleneck the second moves
// fewer bytes; where the chunks stay in caches the first is faster.
//
// For each power of two the first calls alternate between the forms, then the ranks add up their costs and use the
// cheaper form. Both produce the same bits. All ranks call in the same order and agree on the costs, so all of them
// choose the same form.
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
  // Returns the decision for display.
  std::string agree(const char* collective, std::int64_t bytes, const Costs& of_all_ranks);

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

// Chooses the faster of two ways to copy into memory that other CPUs have just read.
//
// A plain store must first take the line away from the CPU that read it last. Where CPUs are far from each other (on
// other dies, or as a virtual machine places them) that is most of an allreduce's time, and a streaming store, which
// sends whole lines to memory without requesting them first, is up to fifteen times as fast. Where CPUs are near it is
// often slower by the same factor. Virtual machines change between the two within seconds, so this is measured
// continuously: the other way is tried on one chunk in kTrial. Each rank chooses independently; the bytes are the same.
class CopyTrials {
 public:
  enum class Way { plain, streaming };

  // Returns the way of the next chunk.
  Way choose();
  void took(Way way, double seconds_per_byte);

 private:
  Way better() const;

  static constexpr unsigned kTrial = 64;

  unsigned chunks_ = 0;
  std::array<double, 2> cost_{};  // seconds per byte, smoothed; 0: unknown
};

}  // namespace hvd
