// Allreduce of tensors that all lie in the arena, in two passes over the data: each rank takes slices, reduces them
// straight from all ranks' tensors, and writes the result straight into all of them.
//
//   1. Step: every rank publishes where its tensors lie in its part of the arena, which also says that they are ready.
//   2. Round: slice by slice, through the first-level cache, to all ranks. When it is finished, so is everything.
//
// Bytes per rank: S read (1/n of each rank's tensors) and S written (1/n into each rank's), where publishing in chunks
// takes 3S read and 2S + S/n written. Sums are taken in rank order, as everywhere.
#include <algorithm>
#include <cstring>

#include "ops/host/host_group.h"

namespace hvd {

namespace {

// What a rank tells of a piece: where in its part of the arena it lies.
struct Residence {
  std::uint64_t input;
  std::uint64_t output;
};

}  // namespace

bool HostGroup::publish_residence(std::span<const Piece> pieces, std::size_t element_size) {
  if (pieces.size() * sizeof(Residence) > window_.chunk_bytes()) return false;
  std::vector<Residence> residences;
  residences.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    const std::size_t bytes = static_cast<std::size_t>(piece.elements) * element_size;
    const auto input = arena_->offset_of(piece.input, bytes), output = arena_->offset_of(piece.output, bytes);
    if (bytes > 0 && (!input || !output)) return false;
    residences.push_back({.input = input.value_or(0), .output = output.value_or(0)});
  }
  std::memcpy(window_.open_step(), residences.data(), residences.size() * sizeof(Residence));
  *window_.own_note() = kResident;
  window_.publish();
  return true;
}

int HostGroup::resident_ranks() const {
  int count = 0;
  for (int rank = 0; rank < ranks(); ++rank) count += *window_.note(rank) == kResident ? 1 : 0;
  return count;
}

void HostGroup::resident_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total) {
  find_tensors(pieces, size_of(reduction.dtype));
  window_.open_round();
  while (const auto slice = window_.take_slice()) {
    const SliceBounds bounds = slice_bounds(total, *slice, window_.slices(), size_of(reduction.dtype));
    std::int64_t begin = 0;  // of the piece
    for (std::size_t p = 0; p < pieces.size(); begin += pieces[p++].elements) {
      const std::int64_t first = std::max(bounds.begin - begin, std::int64_t{0});
      const std::int64_t end = std::min(bounds.end - begin, pieces[p].elements);
      if (first < end) reduce_resident(p, first, end, reduction);
    }
    window_.finish_slice();
  }
  window_.await_round();
}

// What others wrote is checked, and read once only.
void HostGroup::find_tensors(std::span<const Piece> pieces, std::size_t element_size) {
  resident_inputs_.clear();
  resident_outputs_.clear();
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const std::size_t bytes = static_cast<std::size_t>(pieces[p].elements) * element_size;
    for (int rank = 0; rank < ranks(); ++rank) {
      Residence residence{};
      std::memcpy(&residence, window_.slot(rank) + p * sizeof residence, sizeof residence);
      resident_inputs_.push_back(arena_->at(rank, residence.input, bytes));
      resident_outputs_.push_back(arena_->at(rank, residence.output, bytes));
    }
  }
}

void HostGroup::reduce_resident(std::size_t piece, std::int64_t first, std::int64_t end, const Reduction& reduction) {
  const std::size_t size = size_of(reduction.dtype), row = piece * static_cast<std::size_t>(ranks());
  const std::int64_t block = elements_in(kScratchBytes, size);
  for (; first < end; first += block) {
    const auto elements = static_cast<std::size_t>(std::min(block, end - first));
    const std::size_t at = static_cast<std::size_t>(first) * size;
    for (std::size_t rank = 0; rank < sources_.size(); ++rank) sources_[rank] = resident_inputs_[row + rank] + at;
    fold(reduction, reduction.dtype, scratch_, elements);
    for (std::size_t rank = 0; rank < sources_.size(); ++rank) {
      publishing_results_.copy_chunk(resident_outputs_[row + rank] + at, scratch_, elements * size);
    }
  }
}

}  // namespace hvd
