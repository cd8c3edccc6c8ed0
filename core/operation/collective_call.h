// CollectiveCall: a bucket as a backend performs it. The same on every rank of the set, so that score() may read it,
// except `ordinal`, `driving_thread`, and in `pieces` the addresses, events and, of allgather and alltoall, `elements`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/device/device_runtime.h"
#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"

namespace hvd {

// Whether the ranks have agreed on a collective when they enter it.
enum class EntryMode : std::uint8_t {
  negotiated,  // all ranks have agreed on it before
  asking,      // it is performed if all ranks ask for it: see Backend::run
};

// The thread that performs a collective, and waits in it: the engine's, beside those of the program; or one of the
// program's, which has nothing else to do.
enum class DrivingThread : std::uint8_t { engine, caller };

// One tensor of a call. Input and output may be the same memory, and do not overlap otherwise.
struct Piece {
  const void* input = nullptr;         // null although elements > 0: a joined rank, contributes the neutral element
  void* output = nullptr;              // null: the result is not wanted on this rank (it has joined)
  std::int64_t elements = 0;           // of the input: same on every rank for allreduce, broadcast and reducescatter
  const DeviceEvent* ready = nullptr;  // on a device: when the memory may be accessed; null: now
};

// The rows of each of `size` ranks in a reducescatter of `rows`: the remainder goes to the first ranks.
inline std::vector<std::int64_t> even_split(std::int64_t rows, int size) {
  std::vector<std::int64_t> parts(static_cast<std::size_t>(size), rows / size);
  for (std::int64_t i = 0; i < rows % size; ++i) ++parts[static_cast<std::size_t>(i)];
  return parts;
}

struct CollectiveCall {
  Collective collective = Collective::allreduce;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;  // never average: build_call() converts that to sum and postscale
  // Prescale is applied to each input before the reduction, postscale to the result. Both are rounded to float32 for
  // float32 and the 16-bit floats, except an average's 1/n; otherwise double, and integers are truncated.
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;  // broadcast: position in the set
  const ProcessSet* set = nullptr;
  int device = -1;             // where the tensors are: kCpuDevice, or kAccelerator
  int ordinal = -1;            // of this rank's accelerator; -1: this rank has none of the tensors
  std::uint64_t sequence = 0;  // number of this call in the set, the same on every rank
  EntryMode entry = EntryMode::negotiated;
  std::uint32_t call_id = 0;  // identifies what must be equal on all ranks that enter, to detect ranks elsewhere
  DrivingThread driving_thread = DrivingThread::engine;  // of this rank

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

  // What the rank at `position` contributes to a piece, and what it receives, in elements.
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
