// Decisions about collectives inside a host. choose_host_form(): the form of an allreduce, from its size, the ranks and
// the CPUs; host_allreduce() and the table for users both call it, so that they cannot differ. PathTrials: whether
// direct access to other ranks' memory is faster, by timing the first calls of a size. CopyTrials: plain or
// non-temporal stores. Pure: callers measure the time.
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
// where that proved faster (PathTrials).
enum class PeerAccess { window, arena, memory };

// The most bytes that fit beside the number of a step of the window (ops/host/window.h).
inline constexpr std::int64_t kHostPayloadBytes = Signal::kPayloadBytes;
// Up to this size, one rank is done before all others have been scheduled again.
inline constexpr std::int64_t kByLastBytes = 32 << 10;
// Up to these limits, one more wait for each other costs more than reducing everything on every rank.
inline constexpr std::int64_t kOneStepBytes = 16 << 10;
inline constexpr int kOneStepRanks = 8;
// Below this size, copies that stay in cache are as fast as a second barrier, and the ranks need not exchange how their
// tensors can be accessed.
inline constexpr std::int64_t kPeerAccessBytes = 128 << 10;

constexpr bool uses_peer_access(std::int64_t bytes) { return bytes >= kPeerAccessBytes; }

// From these sizes on, a collective may be faster if the ranks access each other's memory: what only moves data saves
// one of two copies and costs a system call. With fewer CPUs than ranks, one more step costs context switches.
inline constexpr std::int64_t kMoveReadingBytes = 16 << 10;
inline constexpr std::int64_t kOversubscribedReadingBytes = 1 << 20;
// From this size on, outputs may be too large for a CPU's share of the last-level cache.
inline constexpr std::int64_t kStreamingBytes = 8 << 20;

// The properties of a host's ranks.
struct HostShape {
  int ranks = 1;
  bool oversubscribed = false;                    // fewer CPUs than ranks
  bool arena = false;                             // there is an arena
  bool reading = false;                           // ranks can read and write each other's memory
  bool non_temporal_stores = false;               // there are stores that bypass the caches
  std::span<const SizeRange<HostForm>> wanted{};  // by the user
};

// The size from which ranks may access each other's memory in an allreduce.
constexpr std::int64_t allreduce_reading_bytes(const HostShape& host) {
  return host.oversubscribed ? kOversubscribedReadingBytes : kPeerAccessBytes;
}

// `bytes`: of all tensors together, more than 0, with at least two ranks. Where the form that the user wants is not
// possible with this access, the choice is as without the user. Inline, since the smallest allreduce takes less than
// 100 ns.
inline HostForm choose_host_form(const HostShape& host, std::int64_t bytes, PeerAccess access = PeerAccess::window) {
  if (bytes <= kHostPayloadBytes) return HostForm::inline_payload;
  if (const auto* range = find_range(host.wanted, static_cast<std::size_t>(bytes))) {
    if (range->algorithm == HostForm::one_step || range->algorithm == HostForm::sliced) return range->algorithm;
  }
  if (uses_peer_access(bytes) && access == PeerAccess::arena) return HostForm::resident;
  if (bytes >= allreduce_reading_bytes(host) && access == PeerAccess::memory) return HostForm::reading;
  if (host.oversubscribed && bytes <= kByLastBytes) return HostForm::by_last;
  if (host.ranks == 2 || (bytes <= kOneStepBytes && host.ranks <= kOneStepRanks)) return HostForm::one_step;
  return HostForm::sliced;
}

// All sizes with their forms, and why, for display.
std::vector<TableLine> host_form_lines(const HostShape& host);
// The table with its heading, without a newline at the end. `others_wanted`: the user has named algorithms between
// hosts, which are not used here.
std::string host_form_text(const HostShape& host, bool others_wanted);

// How the ranks of a host move a collective's data: through the window, in chunks; directly between their memory; or
// through the window with outputs that bypass the caches.
enum class DataPath { window, peer_memory, window_streaming };

// Chooses the fastest data path of a collective for messages of a size, by trying them: through the window in chunks;
// that with outputs that bypass the caches; or by reading the other ranks' memory directly. Where memory is the
// bottleneck, the last moves the fewest bytes, and streaming fewer than plain stores; where tensors stay in caches,
// streaming takes up to three times as long.
//
// For each power of two, calls try the possible paths one after another, in rounds. After each round the paths that
// take twice as long as the fastest are dropped; the fastest after the last round is chosen. Times of the first round,
// into cold memory, are ignored; streaming takes no part in it, so that it is mostly a single slow call. All paths
// produce the same bits. All ranks call in the same order with the same times, so all of them choose the same path.
class PathTrials {
 public:
  static constexpr std::size_t kPaths = 3;
  // What is possible besides the window. Equal on all ranks.
  struct Alternatives {
    bool peer_memory = false;
    bool window_streaming = false;

    bool any() const;
    bool has(DataPath path) const;
  };

  struct Choice {
    DataPath path = DataPath::window;
    bool is_trial = false;  // to be measured
    bool ends_round = false;
  };

  // Returns the path of the next call of that many bytes.
  Choice choose(std::int64_t bytes, Alternatives alternatives) const;
  // Records a trial, which took `seconds` from the first rank's start to the last rank's end. Returns whether the path
  // for this size is now decided.
  bool took(std::int64_t bytes, const Choice& choice, double seconds);
  // The decision for display.
  std::string decision_text(const char* collective, std::int64_t bytes) const;

 private:
  static constexpr int kRounds = 4;

  struct Size {
    int round = 0;
    std::size_t next = 0;  // the path whose turn it is in this round
    std::array<bool, kPaths> dropped{};
    std::array<double, kPaths> fastest{};  // seconds; 0 for what has not been measured
    DataPath chosen = DataPath::window;
  };

  static void end_round(Size& size, std::int64_t bytes);
  static std::size_t index_of(std::int64_t bytes);
  static std::size_t next_path(const Size& size, std::size_t from, Alternatives alternatives);

  std::array<Size, 64> sizes_{};
};

// The alternatives that are worth trying for an allreduce of that many bytes, of all tensors together.
PathTrials::Alternatives allreduce_alternatives(const HostShape& host, std::int64_t bytes);
// The same for a collective that only moves data.
PathTrials::Alternatives move_alternatives(const HostShape& host, std::int64_t bytes);
// The same for a collective that has no reading path.
PathTrials::Alternatives streaming_alternative(const HostShape& host, std::int64_t bytes);

// Chooses the faster of two ways to copy into memory that other CPUs have just read.
//
// A plain store must first take the line away from the CPU that read it last. Where CPUs are far from each other (on
// other dies, or as a virtual machine places them) that is most of an allreduce's time, and a non-temporal store, which
// sends whole lines to memory without requesting them first, is up to fifteen times as fast. Where CPUs are near it is
// often slower by the same factor. Virtual machines change between the two within seconds, so this is measured
// continuously: the other kind is tried on one chunk in kTrial. Each rank chooses independently; the bytes are the
// same.
class CopyTrials {
 public:
  enum class StoreKind { plain, non_temporal };

  // Returns the stores for the next chunk.
  StoreKind choose();
  void took(StoreKind kind, double seconds_per_byte);

 private:
  StoreKind better() const;

  static constexpr unsigned kTrial = 64;

  unsigned chunks_ = 0;
  std::array<double, 2> cost_{};  // seconds per byte, smoothed; 0: unknown
};

}  // namespace hvd
