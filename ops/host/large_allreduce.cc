// Chooses the form of an allreduce of much data.
//
// In the first step every rank publishes how the others can access its tensors: as a chunk in the window, as usual; by
// their places in the arena; or, while reading from each other is tried or has proved faster (form_trials.h), by their
// addresses. If the better way works for all ranks it is taken. If no rank has published places, the first chunks are
// already there. If only some have, all ranks start again with chunks.
#include <algorithm>
#include <cstring>

#include "ops/host/host_communicator.h"

namespace hvd {

void HostCommunicator::large_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total) {
  const std::int64_t bytes = total * static_cast<std::int64_t>(size_of(reduction.dtype));
  in_better_form(allreduce_trials_, bytes,
                 [&](FormTrials::Form form) { place_and_reduce(pieces, reduction, total, form); });
}

void HostCommunicator::place_and_reduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total,
                                        FormTrials::Form form) {
  Publication publication{PieceCursor(pieces), total, chunk_elements(reduction.dtype)};
  const Publication from_start = publication;
  if (!publish_places(pieces, size_of(reduction.dtype), form)) publish_next(publication, reduction);
  window_.await_all();
  const int resident = count_ranks(Published::residence), readable = count_ranks(Published::addresses);
  const Reach reach = resident == ranks() ? Reach::arena : readable == ranks() ? Reach::memory : Reach::chunks;
  const HostForm chosen = choose_host_form(facts(), total * static_cast<std::int64_t>(size_of(reduction.dtype)), reach);
  if (chosen == HostForm::resident) return resident_allreduce(pieces, reduction, total);
  if (chosen == HostForm::reading) return reading_allreduce(pieces, reduction, total);
  if (resident + readable > 0) publication = from_start;
  chunked_allreduce(publication, pieces, reduction, total);
}

bool HostCommunicator::publish_places(std::span<const Piece> pieces, std::size_t element_size, FormTrials::Form form) {
  if (pieces.size() * sizeof(Place) > window_.chunk_bytes()) return false;
  std::vector<Place> places(pieces.size());
  auto kind = Published::residence;
  if (!find_residence(pieces, element_size, places)) {
    if (form != FormTrials::Form::reading || !find_addresses(pieces, places)) return false;
    kind = Published::addresses;
  }
  std::memcpy(window_.open_step(), places.data(), places.size() * sizeof(Place));
  *window_.local_note() = static_cast<std::byte>(kind);
  window_.publish();
  return true;
}

bool HostCommunicator::find_residence(std::span<const Piece> pieces, std::size_t element_size,
                                      std::span<Place> places) const {
  if (arena_ == nullptr) return false;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const std::size_t bytes = static_cast<std::size_t>(pieces[p].elements) * element_size;
    const auto input = arena_->offset_of(pieces[p].input, bytes), output = arena_->offset_of(pieces[p].output, bytes);
    if (bytes > 0 && (!input || !output)) return false;
    places[p] = {.input = input.value_or(0), .output = output.value_or(0)};
  }
  return true;
}

// A joined rank has no tensors.
bool HostCommunicator::find_addresses(std::span<const Piece> pieces, std::span<Place> places) {
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    if (pieces[p].elements > 0 && (pieces[p].input == nullptr || pieces[p].output == nullptr)) return false;
    places[p] = {.input = reinterpret_cast<std::uint64_t>(pieces[p].input),
                 .output = reinterpret_cast<std::uint64_t>(pieces[p].output)};
  }
  return true;
}

int HostCommunicator::count_ranks(Published kind) const {
  int count = 0;
  for (int rank = 0; rank < ranks(); ++rank) count += *window_.note(rank) == static_cast<std::byte>(kind) ? 1 : 0;
  return count;
}

std::vector<HostCommunicator::Place> HostCommunicator::published_places(std::size_t pieces) const {
  const auto count = static_cast<std::size_t>(ranks());
  std::vector<Place> places(pieces * count);
  for (std::size_t p = 0; p < pieces; ++p) {
    for (std::size_t rank = 0; rank < count; ++rank) {
      places[p * count + rank] = published_place(static_cast<int>(rank), p);
    }
  }
  return places;
}

HostCommunicator::Place HostCommunicator::published_place(int rank, std::size_t piece) const {
  Place place{};
  std::memcpy(&place, window_.slot(rank) + piece * sizeof place, sizeof place);
  return place;
}

template <typename Note>
std::vector<Note> HostCommunicator::exchange_notes(const Note& own) {
  window_.open_step();
  std::memcpy(window_.local_note(), &own, sizeof own);
  window_.publish();
  window_.await_all();
  std::vector<Note> notes(sources_.size());
  for (int rank = 0; rank < ranks(); ++rank) {
    std::memcpy(&notes[static_cast<std::size_t>(rank)], window_.note(rank), sizeof own);
  }
  return notes;
}

FormTrials::Costs HostCommunicator::sum_of(const FormTrials::Costs& own) {
  FormTrials::Costs sum{};
  for (const FormTrials::Costs& costs : exchange_notes(own)) {
    for (std::size_t form = 0; form < sum.size(); ++form) sum[form] += costs[form];
  }
  return sum;
}

void HostCommunicator::introduce() {
  // With fewer CPUs than ranks, measured times depend more on scheduling than on the form.
  if (ranks() == 1 || window_.oversubscribed()) return;
  const std::byte readable{peers_.meet(exchange_notes(peers_.introduction()))};
  const std::vector<std::byte> answers = exchange_notes(readable);
  reads_ = std::count(answers.begin(), answers.end(), std::byte{true}) == ranks();
}

void HostCommunicator::meet() {
  window_.open_step();
  window_.publish();
  window_.await_all();
}

}  // namespace hvd
