// The collectives in which every rank has different data for the others.
//
// allgather: every rank publishes its part chunk by chunk, and copies the parts of the others. reducescatter, alltoall:
// a slot holds a block for each rank, so that all of them have data to reduce or to copy in every step. Each rank
// starts with a different source. Where that is faster, allgather and alltoall read the others' inputs directly
// (TensorLocation); in a large allgather the ranks write into the others' outputs.
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "core/base/error.h"
#include "ops/host/collectives.h"
#include "ops/host/peer_tensors.h"

namespace hvd {

namespace {

// The size from which an allgather writes instead of reading.
constexpr std::int64_t kWritingBytes = 2 << 20;

void check_counts(const HostCounts& counts, std::size_t rows, int ranks, const char* collective) {
  bool right = counts.size() == rows;
  for (const auto& row : counts) {
    right = right && row.size() == static_cast<std::size_t>(ranks);
    for (const std::int64_t count : row) right = right && count >= 0;
  }
  if (!right) throw Internal(std::string(collective) + ": the counts do not fit the tensors and the ranks");
}

std::int64_t steps_for(std::int64_t elements, std::int64_t elements_per_step) {
  return (elements + elements_per_step - 1) / elements_per_step;
}

// The number of elements in step `step` out of `total`; 0 after the last.
std::int64_t count_in_step(std::int64_t total, std::int64_t step, std::int64_t elements_per_step) {
  return std::clamp(total - step * elements_per_step, std::int64_t{0}, elements_per_step);
}

// Copies the inputs that are in the same memory as their outputs, since outputs are written before all of the inputs
// are read. Returns the copies, and redirects `pieces` to them.
std::unique_ptr<std::byte[]> copy_in_place_inputs(std::vector<Piece>& pieces, std::size_t size) {
  const auto in_place = [](const Piece& piece) { return piece.input != nullptr && piece.input == piece.output; };
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) {
    if (in_place(piece)) bytes += static_cast<std::size_t>(piece.elements) * size;
  }
  auto copies = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::byte* next = copies.get();
  for (Piece& piece : pieces) {
    if (!in_place(piece)) continue;
    copy_elements(next, piece.input, piece.elements, size);
    piece.input = next;
    next += static_cast<std::size_t>(piece.elements) * size;
  }
  return copies;
}

// The data of or for each rank, piece by piece.
using Parts = std::vector<std::vector<Piece>>;

// counts[piece][rank]: sizes of the parts. Calls make(piece, rank, first element, elements).
template <typename Make>
Parts parts_of(const HostCounts& counts, int ranks, const Make& make) {
  Parts parts(static_cast<std::size_t>(ranks));
  for (std::size_t p = 0; p < counts.size(); ++p) {
    std::int64_t first = 0;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      parts[rank].push_back(make(p, rank, first, counts[p][rank]));
      first += counts[p][rank];
    }
  }
  return parts;
}

// Where the parts begin, and their numbers of elements.
struct Positions {
  explicit Positions(const Parts& parts) {
    for (const auto& part : parts) {
      cursors.emplace_back(part);
      totals.push_back(elements_of(part));
    }
  }
  std::int64_t largest() const { return *std::max_element(totals.begin(), totals.end()); }

  std::vector<PieceCursor> cursors;
  std::vector<std::int64_t> totals;
};

void write_parts(HostContext& context, std::span<const Piece> outputs, std::span<const Piece> part, std::size_t size) {
  constexpr std::size_t kBlockBytes = 128 << 10;
  const auto ranks = static_cast<std::size_t>(context.ranks()), self = static_cast<std::size_t>(context.rank());
  const std::vector<TensorLocation> locations = published_locations(context, outputs.size());
  const std::int64_t block = elements_in(kBlockBytes, size);
  for (std::size_t p = 0; p < part.size(); ++p) {
    const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(part[p].output) -
                                                   static_cast<std::byte*>(outputs[p].output));
    for (std::int64_t first = 0; first < part[p].elements; first += block) {
      const std::int64_t count = std::min(block, part[p].elements - first);
      const std::uint64_t at = offset + static_cast<std::uint64_t>(first) * size;
      const void* const input = advance(part[p].input, first, size);
      copy_elements(advance(part[p].output, first, size), input, count, size);
      for (std::size_t distance = 1; distance < ranks; ++distance) {
        const std::size_t peer = (self + distance) % ranks;
        write_to_peer(context, static_cast<int>(peer), locations[p * ranks + peer].output + at, input,
                      static_cast<std::size_t>(count) * size);
      }
    }
  }
}

void allgather_in_chunks(HostContext& context, const Parts& parts, DType dtype) {
  const std::size_t size = size_of(dtype), self = static_cast<std::size_t>(context.rank());
  const std::int64_t chunk = elements_in(context.window.chunk_bytes(), size);
  Positions positions(parts);
  auto& [cursors, totals] = positions;
  const std::int64_t steps = steps_for(positions.largest(), chunk);
  PieceCursor local_outputs(parts[self]);
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t count = count_in_step(totals[self], step, chunk);
    std::byte* slot = context.window.open_step();
    pack(context, cursors[self], count, {.dtype = dtype}, slot);
    context.window.publish();
    context.window.await_entry();
    unpack(context, local_outputs, count, size, slot);  // while the others still publish
    context.window.await_all();
    for (int distance = 1; distance < context.ranks(); ++distance) {
      const int source = (context.rank() + distance) % context.ranks();
      const auto s = static_cast<std::size_t>(source);
      unpack(context, cursors[s], count_in_step(totals[s], step, chunk), size, context.window.slot(source));
    }
  }
}

// Each rank writes its part into all outputs, block by block: it reads a block from memory once, for all of them.
// Tensors that fit into the caches are better read by their receivers: a write takes the lines of the output away from
// the cache of its owner. `outputs`: where the whole outputs begin; `part`: this rank's inputs and their places in its
// outputs. Returns false, on all ranks, if some rank has tensors that others cannot access; nothing has been moved
// then.
bool allgather_by_writing(HostContext& context, std::span<const Piece> outputs, std::span<const Piece> part,
                          std::size_t size) {
  bool accessible = true;
  std::vector<TensorLocation> locations;
  for (std::size_t p = 0; p < outputs.size(); ++p) {
    accessible = accessible && outputs[p].output != nullptr && (part[p].input != nullptr || part[p].elements == 0);
    locations.push_back({.input = 0, .output = reinterpret_cast<std::uint64_t>(outputs[p].output)});
  }
  bool done = false;
  while_others_write(context, [&] {
    if (!exchange_addresses(context, locations, accessible)) return;
    write_parts(context, outputs, part, size);
    barrier_step(context);
    done = true;
  });
  return done;
}

void alltoall_in_chunks(HostContext& context, std::span<const void* const> to, std::span<void* const> from,
                        const HostCounts& counts, std::size_t size) {
  const std::size_t count = to.size(), self = static_cast<std::size_t>(context.rank());
  std::int64_t largest = 0;
  for (std::size_t source = 0; source < count; ++source) {
    for (std::size_t peer = 0; peer < count; ++peer) {
      if (peer != source) largest = std::max(largest, counts[source][peer]);
    }
  }
  const std::size_t block_bytes = context.window.chunk_bytes() / count / 64 * 64;
  const std::int64_t block = elements_in(block_bytes, size);
  for (std::int64_t step = 0; step < steps_for(largest, block); ++step) {
    std::byte* slot = context.window.open_step();
    for (std::size_t peer = 0; peer < count; ++peer) {
      const std::int64_t elements = count_in_step(counts[self][peer], step, block);
      if (peer == self || elements == 0) continue;
      context.publishing.copy_chunk(slot + peer * block_bytes,
                                    static_cast<const std::byte*>(advance(to[peer], step * block, size)),
                                    static_cast<std::size_t>(elements) * size);
    }
    context.window.publish();
    context.window.await_all();
    for (std::size_t distance = 1; distance < count; ++distance) {  // each rank starts with a different source
      const std::size_t peer = (self + distance) % count;
      if (from[peer] == nullptr) continue;
      write_output(context, static_cast<std::byte*>(advance(from[peer], step * block, size)),
                   context.window.slot(static_cast<int>(peer)) + self * block_bytes,
                   static_cast<std::size_t>(count_in_step(counts[peer][self], step, block)) * size);
    }
  }
}

// `joined`: this rank has no input for some piece.
void reducescatter_in_chunks(HostContext& context, const Parts& parts, bool joined, const Reduction& reduction) {
  const std::size_t size = size_of(reduction.dtype), self = static_cast<std::size_t>(context.rank());
  const std::size_t block_bytes = context.window.chunk_bytes() / static_cast<std::size_t>(context.ranks()) / 64 * 64;
  const std::int64_t block = elements_in(block_bytes, size);
  Positions positions(parts);
  auto& [cursors, totals] = positions;
  PieceCursor results(parts[self]);
  const std::int64_t steps = steps_for(positions.largest(), block);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::byte* slot = context.window.open_step();
    for (std::size_t destination = 0; destination < parts.size(); ++destination) {
      // This rank's block stays empty: it is reduced from the input, unless there is none.
      if (destination == self && !joined) continue;
      pack(context, cursors[destination], count_in_step(totals[destination], step, block), reduction,
           slot + destination * block_bytes);
    }
    context.window.publish();
    context.window.await_all();
    find_published(context, self * block_bytes);
    reduce_from_sources(context, results, count_in_step(totals[self], step, block), reduction);
  }
}

}  // namespace

void host_allgather(HostContext& context, std::span<const Piece> pieces, const HostCounts& counts, DType dtype) {
  check_counts(counts, pieces.size(), context.ranks(), "allgather");
  const std::size_t size = size_of(dtype);
  std::vector<Piece> own(pieces.begin(), pieces.end());
  // The first rank's part begins the output: an in-place input is already at its place.
  const auto copies = context.rank() == 0 ? nullptr : copy_in_place_inputs(own, size);

  const auto self = static_cast<std::size_t>(context.rank());
  // Only this rank's part has inputs.
  const Parts parts =
      parts_of(counts, context.ranks(), [&](std::size_t p, std::size_t source, std::int64_t first, std::int64_t count) {
        return Piece{.input = source == self ? own[p].input : nullptr,
                     .output = advance(own[p].output, first, size),
                     .elements = count};
      });
  const std::vector<Piece>& kept = parts[self];
  if (context.ranks() == 1) return copy_local_part(kept, size);

  std::int64_t bytes = 0;
  std::vector<Move> moves;
  for (int distance = 0; distance < context.ranks(); ++distance) {  // each rank starts with a different source
    const int source = (context.rank() + distance) % context.ranks();
    const auto& from = parts[static_cast<std::size_t>(source)];
    bytes += elements_of(from) * static_cast<std::int64_t>(size);
    for (std::size_t p = 0; distance > 0 && p < from.size(); ++p) {
      moves.push_back({source, p, 0, from[p].output, from[p].elements});
    }
  }
  context.window.waits().begin("allgather");
  const PathTrials::Alternatives alternatives = move_alternatives(context.shape(), bytes);
  on_fastest_path(context, "allgather", context.trials.allgather, bytes, alternatives, [&](DataPath path) {
    if (path == DataPath::peer_memory && bytes >= kWritingBytes) {
      if (allgather_by_writing(context, own, kept, size)) return;
    } else if (path == DataPath::peer_memory && move_by_reading(context, kept, moves, size)) {
      return copy_local_part(kept, size);
    }
    allgather_in_chunks(context, parts, dtype);
  });
}

void host_reducescatter(HostContext& context, std::span<const Piece> pieces, const HostCounts& counts,
                        const Reduction& reduction) {
  check_reduction(reduction.dtype, reduction.op);
  check_counts(counts, pieces.size(), context.ranks(), "reducescatter");
  const std::size_t size = size_of(reduction.dtype);
  std::vector<Piece> own(pieces.begin(), pieces.end());
  const auto copies = copy_in_place_inputs(own, size);

  // Only this rank's part needs outputs.
  const Parts parts =
      parts_of(counts, context.ranks(), [&](std::size_t p, std::size_t, std::int64_t first, std::int64_t count) {
        return Piece{.input = advance(own[p].input, first, size), .output = own[p].output, .elements = count};
      });

  const bool joined =
      std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.input == nullptr; });
  std::int64_t bytes = 0;  // of one rank's inputs
  for (const auto& part : parts) bytes += elements_of(part) * static_cast<std::int64_t>(size);
  context.window.waits().begin("reducescatter");
  on_fastest_path(context, "reducescatter", context.trials.reducescatter, bytes,
                  streaming_alternative(context.shape(), bytes),
                  [&](DataPath) { reducescatter_in_chunks(context, parts, joined, reduction); });
}

void host_alltoall(HostContext& context, const Piece& piece, const HostCounts& counts, DType dtype) {
  const auto count = static_cast<std::size_t>(context.ranks());
  check_counts(counts, count, context.ranks(), "alltoall");
  const std::size_t size = size_of(dtype), self = static_cast<std::size_t>(context.rank());
  std::vector<Piece> own{piece};
  const auto copies = copy_in_place_inputs(own, size);

  std::vector<const void*> to(count);  // data for each rank
  std::vector<void*> from(count);      // destinations of the data from each rank
  std::vector<Move> moves;
  std::int64_t sent = 0, received = 0, bytes = 0;
  for (std::size_t peer = 0; peer < count; ++peer) {
    to[peer] = advance(own[0].input, sent, size);
    from[peer] = advance(piece.output, received, size);
    sent += counts[self][peer];
    received += counts[peer][self];
    bytes += std::accumulate(counts[peer].begin(), counts[peer].end(), std::int64_t{0});
  }
  bytes *= static_cast<std::int64_t>(size);
  for (std::size_t distance = 1; distance < count; ++distance) {  // each rank starts with a different source
    const std::size_t peer = (self + distance) % count;
    const std::vector<std::int64_t>& row = counts[peer];
    const auto local_place = row.begin() + static_cast<std::ptrdiff_t>(self);
    moves.push_back({static_cast<int>(peer), 0, std::accumulate(row.begin(), local_place, std::int64_t{0}), from[peer],
                     *local_place});
  }
  own[0].elements = sent;

  context.window.waits().begin("alltoall");
  const PathTrials::Alternatives alternatives = move_alternatives(context.shape(), bytes);
  on_fastest_path(context, "alltoall", context.trials.alltoall, bytes, alternatives, [&](DataPath path) {
    if (path == DataPath::peer_memory && move_by_reading(context, own, moves, size)) return;
    alltoall_in_chunks(context, to, from, counts, size);
  });
  // Last: a rank may still decline, and no output may have changed then.
  copy_elements(from[self], to[self], counts[self][self], size);
}

}  // namespace hvd
