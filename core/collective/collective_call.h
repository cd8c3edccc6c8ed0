// One collective on a list of tensors, as a backend is asked to do it. Built from negotiated facts, so that every
// field but the pointers is the same on every rank of the set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/collective/collective.h"
#include "core/collective/process_set.h"
#include "core/device/device_event.h"
#include "core/tensor/dtype.h"

namespace hvd {

// On what terms a rank enters a collective.
enum class Entry : std::uint8_t {
  settled,  // all ranks have agreed on it beforehand
  asking,   // it takes place if all ranks ask for it: see Backend::run
};

// One tensor of a call. Input and output may be the same memory, and never overlap otherwise.
struct Piece {
  const void* input = nullptr;  // null with elements to give: a joined rank, contributes the operation's identity
  void* output = nullptr;       // null: the result is not wanted here (joined rank)
  std::int64_t elements = 0;    // of the input: same on every rank for allreduce, broadcast and reducescatter
  const DeviceEvent* ready = nullptr;  // on a device: when the memory may be touched; null: now
};

struct CollectiveCall {
  Collective collective = Collective::allreduce;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;  // never average: the engine has turned that into sum and postscale
  // Prescale is applied to each input before, postscale to the result after the reduction: numbers of float32 to
  // float32 and the 16-bit floats, but for an average's 1/n; else in double, integers being truncated then.
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;  // broadcast: position in the set
  const ProcessSet* set = nullptr;
  int device = -1;             // where the tensors lie: kCpuDevice, or kAccelerator
  int ordinal = -1;            // of this rank's accelerator; -1: none of the tensors is this rank's
  std::uint64_t sequence = 0;  // number of this call in the set, the same on every rank
  Entry entry = Entry::settled;
  std::uint32_t call_id = 0;  // with what must be the same on every rank that enters, to find out who is elsewhere

  std::vector<Piece> pieces;

  // Elements by rank of the set.
  //   allgather:     counts[piece][rank] = what the rank contributes; the output holds them in rank order
  //   reducescatter: counts[piece][rank] = what the rank receives, in rank order out of the input
  //   alltoall:      counts[source][destination]; the one piece's output holds them in source order
  //   otherwise empty
  std::vector<std::vector<std::int64_t>> counts;

  std::int64_t total_elements() const {
    std::int64_t total = 0;
    for (const Piece& piece : pieces) total += piece.elements;
    return total;
  }

  // What the rank at `position` gives of a piece, and what it gets, in elements.
  std::int64_t given(std::size_t piece, std::size_t position) const {
    switch (collective) {
      case Collective::allgather: return counts[piece][position];
      case Collective::alltoall:
        return std::accumulate(counts[position].begin(), counts[position].end(), std::int64_t{0});
      default: return pieces[piece].elements;
    }
  }
  std::int64_t received(std::size_t piece, std::size_t position) const {
    switch (collective) {
      case Collective::allgather: return std::accumulate(counts[piece].begin(), counts[piece].end(), std::int64_t{0});
      case Collective::reducescatter: return counts[piece][position];
      case Collective::alltoall: {
        std::int64_t total = 0;
        for (const auto& from : counts) total += from[position];
        return total;
      }
      default: return pieces[piece].elements;
    }
  }
};

}  // namespace hvd
