#include "ops/algorithms/ring_pass.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ops/reduction/reduce.h"

namespace hvd {

namespace {

struct Segment {
  int step = 0;                       // of the ring, in which it is received
  std::int64_t begin = 0, count = 0;  // elements
};

class Ring {
 public:
  Ring(const RingPass& pass, int first_step, int last_step);
  void run();

 private:
  struct Incoming {
    Segment segment;
    std::byte* memory;
    Transport::Ticket ticket;
  };

  // The slice that this position sends in a step, and receives in the step before.
  std::size_t slice_of(int step) const { return static_cast<std::size_t>(((position_ - 1 - step) % n_ + n_) % n_); }
  bool folds(int step) const { return step < n_ - 1; }
  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * element_bytes_; }
  std::byte* at(std::int64_t element) const { return static_cast<std::byte*>(pass_.buffer) + bytes(element); }

  void allocate_scratch();
  std::optional<Segment> next_segment();
  bool post_receive();
  void send(std::int64_t begin, std::int64_t count);
  void send_first_slice();
  void fold(const Incoming& incoming) const;

  const RingPass& pass_;
  const int n_, position_, first_step_, last_step_;
  const std::size_t element_bytes_;
  const std::int64_t segment_elements_;
  const int to_, from_;

  // Where the receives stand: the next segment begins here in the slice of this step.
  int receive_step_;
  std::int64_t receive_offset_ = 0;

  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_slot_bytes_ = 0;
  std::uint32_t received_ = 0, sent_ = 0;  // segments posted so far
  std::deque<Incoming> incoming_;
  std::vector<Transport::Ticket> sends_;
};

Ring::Ring(const RingPass& pass, int first_step, int last_step)
    : pass_(pass),
      n_(static_cast<int>(pass.members.size())),
      position_(pass.position),
      first_step_(first_step),
      last_step_(last_step),
      element_bytes_(size_of(pass.element_type)),
      segment_elements_(kRingSegmentBytes / static_cast<std::int64_t>(element_bytes_)),
      to_(pass.members[static_cast<std::size_t>((position_ + 1) % n_)]),
      from_(pass.members[static_cast<std::size_t>((position_ + n_ - 1) % n_)]),
      receive_step_(first_step) {
  if (folds(first_step)) allocate_scratch();
}

void Ring::allocate_scratch() {
  std::int64_t longest = 0;
  for (std::size_t slice = 0; slice + 1 < pass_.slice_bounds.size(); ++slice) {
    longest = std::max(longest, pass_.slice_bounds[slice + 1] - pass_.slice_bounds[slice]);
  }
  scratch_slot_bytes_ = bytes(std::min(longest, segment_elements_));
  scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch_slot_bytes_ * kReceivesAhead);
}

std::optional<Segment> Ring::next_segment() {
  for (; receive_step_ < last_step_; ++receive_step_, receive_offset_ = 0) {
    const std::size_t slice = slice_of(receive_step_ + 1);
    const std::int64_t begin = pass_.slice_bounds[slice] + receive_offset_;
    const std::int64_t left = pass_.slice_bounds[slice + 1] - begin;
    if (left == 0) continue;
    const std::int64_t count = std::min(left, segment_elements_);
    receive_offset_ += count;
    return Segment{.step = receive_step_, .begin = begin, .count = count};
  }
  return std::nullopt;
}

bool Ring::post_receive() {
  const auto segment = next_segment();
  if (!segment) return false;
  std::byte* memory =
      folds(segment->step) ? scratch_.get() + received_ % kReceivesAhead * scratch_slot_bytes_ : at(segment->begin);
  Tag tag = pass_.tag;
  tag.step += received_++;
  const auto ticket = pass_.transport.post_receive(from_, tag, {memory, bytes(segment->count)});
  incoming_.push_back({.segment = *segment, .memory = memory, .ticket = ticket});
  return true;
}

void Ring::send(std::int64_t begin, std::int64_t count) {
  Tag tag = pass_.tag;
  tag.step += sent_++;
  sends_.push_back(pass_.transport.post_send(to_, tag, {at(begin), bytes(count)}));
}

void Ring::send_first_slice() {
  const std::size_t slice = slice_of(first_step_);
  const std::int64_t end = pass_.slice_bounds[slice + 1];
  for (std::int64_t begin = pass_.slice_bounds[slice]; begin < end; begin += segment_elements_) {
    send(begin, std::min(segment_elements_, end - begin));
  }
}

// What came from the left holds the ranks before this one: it goes first.
void Ring::fold(const Incoming& incoming) const {
  std::byte* own = at(incoming.segment.begin);
  const void* inputs[] = {incoming.memory, own};
  const Reduction reduction{.dtype = pass_.element_type, .op = pass_.op};
  reduce(reduction, pass_.element_type, inputs, pass_.element_type, own,
         static_cast<std::size_t>(incoming.segment.count));
}

void Ring::run() {
  while (incoming_.size() < kReceivesAhead && post_receive()) {
  }
  send_first_slice();
  while (!incoming_.empty()) {
    const Incoming incoming = incoming_.front();
    incoming_.pop_front();
    pass_.transport.wait(incoming.ticket, pass_.deadline);
    if (folds(incoming.segment.step)) fold(incoming);
    if (incoming.segment.step + 1 < last_step_) send(incoming.segment.begin, incoming.segment.count);
    post_receive();
  }
  for (const auto ticket : sends_) pass_.transport.wait(ticket, pass_.deadline);
}

}  // namespace

void run_ring(const RingPass& pass, RingPass::Steps steps) {
  const int n = static_cast<int>(pass.members.size());
  if (n < 2) return;
  const int first = steps == RingPass::Steps::allgather ? n - 1 : 0;
  const int last = steps == RingPass::Steps::reduce_scatter ? n - 1 : 2 * (n - 1);
  Ring(pass, first, last).run();
}

}  // namespace hvd
