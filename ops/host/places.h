// How the ranks of a host reach each other's tensors without a copy in the window: they publish the places of their
// tensors, in the arena or in their own memory, instead of the content; and the choice, by trial, whether a collective
// of a size does (FormTrials, ops/choice/host_choice.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/operation/collective_call.h"
#include "ops/host/host_context.h"

namespace hvd {

// The first byte of a step's note: what a rank has published in its slot.
enum class Published : unsigned char { chunk, residence, addresses };

// The place of a piece: offsets in the rank's part of the arena, or addresses in its memory.
struct Place {
  std::uint64_t input;
  std::uint64_t output;
};

// Publishes the places of the pieces instead of their content, if the other ranks can access all of them: in the arena
// or, in the reading form, in this rank's memory. Returns false if nothing was published.
bool publish_places(HostContext& context, std::span<const Piece> pieces, std::size_t element_size,
                    FormTrials::Form form);
// The number of ranks that published this kind in the current step.
int count_ranks(const HostContext& context, Published kind);
// The published places: by piece, within a piece by rank.
std::vector<Place> published_places(const HostContext& context, std::size_t pieces);

// Data that this rank reads from another rank's input.
struct Move {
  int source;
  std::size_t piece;
  std::int64_t first;
  void* output;
  std::int64_t elements;
};

// A collective that only moves data, by reading it directly from the other ranks' memory (peer_memory.h).
//
//   1. Step: every rank publishes the addresses of its inputs.
//   2. Each rank reads its data.
//   3. Step: no rank continues, and changes its inputs, before all ranks have read them.
//
// Bytes per rank: those that it receives, read and written once, where chunks copy them into the window and out of it;
// but the kernel looks up every page. Two barriers, whatever the size.
//
// `inputs` are those that other ranks may read. Returns false, on all ranks, if some rank has inputs that cannot be
// read; nothing has been moved then.
bool move_by_reading(HostContext& context, std::span<const Piece> inputs, std::span<const Move> moves,
                     std::size_t element_size);

// A step without data.
void rendezvous(HostContext& context);

// Exchanges notes in a separate step; returns them by rank.
template <typename Note>
std::vector<Note> exchange_notes(HostContext& context, const Note& own) {
  context.window.open_step();
  std::memcpy(context.window.local_note(), &own, sizeof own);
  context.window.publish();
  context.window.await_all();
  std::vector<Note> notes(static_cast<std::size_t>(context.ranks()));
  for (int rank = 0; rank < context.ranks(); ++rank) {
    std::memcpy(&notes[static_cast<std::size_t>(rank)], context.window.note(rank), sizeof own);
  }
  return notes;
}

// Ends the trials of a size: the ranks add up their costs.
void agree_on_form(HostContext& context, const char* collective, FormTrials& trials, std::int64_t bytes);

// Calls run(form) with the form for that many bytes, and times it during trials. All ranks pass the same bytes. The
// decision is reported under the name of the collective.
template <typename Run>
void in_better_form(HostContext& context, const char* collective, FormTrials& trials, std::int64_t bytes,
                    const Run& run) {
  if (!context.reads || !reach_matters(bytes)) return run(FormTrials::Form::chunks);
  const FormTrials::Choice choice = trials.choose(bytes);
  if (!choice.is_trial) return run(choice.form);
  try {
    rendezvous(context);  // so that the time of late ranks is not measured
  } catch (const Declined&) {
    trials.take_back(bytes);
    throw;
  }
  const TimePoint started = Clock::now();
  run(choice.form);
  trials.took(bytes, choice.form, seconds(Clock::now() - started));
  if (choice.is_last) agree_on_form(context, collective, trials, bytes);
}

}  // namespace hvd
