// The ring algorithms: slices are sent around a ring of ranks in segments.
//
// Idea. Position p sends only to p+1 and receives only from p-1. The values have N slices. In step t (0 <= t < 2N-2), p
// sends slice p-1-t and receives slice p-2-t (mod N), which is what it sends in step t+1. In the first N-1 steps
// partial sums arrive, as accumulators, and this rank's values are folded into them; the last of these steps completes
// slice p, which is scaled and rounded here and nowhere else. In the last N-1 steps results arrive, in the tensors' own
// type, and replace what is there.
//
// Pipeline. A slice is sent in segments of kRingSegmentBytes of accumulators. A segment is forwarded as soon as it was
// folded, while the next ones are still in transit, so that arithmetic overlaps with transmission and both directions
// stay busy. kReceivesAhead receives are always posted; those that will be folded use scratch memory that stays in
// cache. This rank's values are made ready segment by segment. Of the segments that start here kSendsAhead are sent
// before any has arrived and then two for each segment that arrives, so that filling them delays nothing, and many
// segments are soon in transit: if a rank is delayed, the others can continue for a while.
//
// Order. The value of an element of slice h is folded at h+1, h+2, ..., h in this order, whatever the timing: the same
// bits in every run, and one result that is copied, not recomputed, on every rank.
//
// A result may be received into memory whose partial value was sent before: its arrival proves that the partial value
// has been sent, since it is part of the sum.
#include "ops/algorithms/allreduce.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace hvd {

namespace {

constexpr std::size_t kReceivesAhead = 8;
constexpr std::size_t kSendsAhead = 16;

enum class RingSteps { reduce_scatter, allgather, all };  // the first N-1 steps, the last N-1 steps, both

struct Segment {
  int step = 0;                       // of the ring, in which it is sent or received
  std::int64_t begin = 0, count = 0;  // elements
  std::int64_t end() const { return begin + count; }
};

// Iterates over the segments of the slices of the steps [first, last), in order.
class SegmentCursor {
 public:
  // `shift` 0: the slices that this position sends in these steps; 1: those that it receives.
  SegmentCursor(const SlicedReduction& args, int first_step, int last_step, int shift, std::int64_t limit)
      : args_(args), step_(first_step), last_step_(last_step), shift_(shift), limit_(limit) {}

  std::optional<Segment> next() {
    for (; step_ < last_step_; ++step_, offset_ = 0) {
      const int slice = args_.around(args_.position - 1 - step_ - shift_);
      const std::int64_t begin = args_.begin_of(slice) + offset_;
      const std::int64_t left = args_.end_of(slice) - begin;
      if (left == 0) continue;
      const std::int64_t count = std::min(left, limit_);
      offset_ += count;
      return Segment{.step = step_, .begin = begin, .count = count};
    }
    return std::nullopt;
  }

 private:
  const SlicedReduction& args_;
  int step_;
  const int last_step_;
  const int shift_;
  const std::int64_t limit_;  // elements
  std::int64_t offset_ = 0;   // in the slice
};

class Ring {
 public:
  Ring(const SlicedReduction& args, int first_step, int last_step, std::int64_t segment_elements)
      : args_(args),
        n_(args.ranks()),
        first_step_(first_step),
        last_step_(last_step),
        to_(args.member(args.around(args.position + 1))),
        from_(args.member(args.around(args.position - 1))),
        own_(args, first_step, first_step + 1, 0, segment_elements),
        expected_(args, first_step, last_step, 1, segment_elements) {
    if (reduces()) allocate_scratch(segment_elements);
  }

  void run() {
    while (incoming_.size() < kReceivesAhead && post_receive()) {
    }
    post_sends(kSendsAhead);
    for (std::size_t received = 1; !incoming_.empty(); ++received) {
      const Segment segment = incoming_.front().segment;
      receive();
      post_sends(2 * received + kSendsAhead);
      if (reduces() && segment.step >= n_ - 2) args_.make_complete(segment.begin, segment.end());
    }
    post_sends(std::numeric_limits<std::size_t>::max());
    for (const auto request : sends_) args_.transport.wait(request, args_.deadline);
  }

 private:
  struct Incoming {
    Segment segment;
    std::span<std::byte> memory;
    Transport::RequestId request;
  };

  bool carries_values(int step) const { return step < n_ - 1; }
  bool reduces() const { return carries_values(first_step_); }

  void allocate_scratch(std::int64_t segment_elements) {
    std::int64_t longest = 0;
    for (int slice = 0; slice < n_; ++slice) longest = std::max(longest, args_.end_of(slice) - args_.begin_of(slice));
    scratch_slot_bytes_ = static_cast<std::size_t>(std::min(longest, segment_elements)) * size_of(args_.value_type);
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch_slot_bytes_ * kReceivesAhead);
  }

  bool post_receive() {
    const auto segment = expected_.next();
    if (!segment) return false;
    const std::span<std::byte> memory =
        carries_values(segment->step) ? std::span(scratch_.get() + posted_ % kReceivesAhead * scratch_slot_bytes_,
                                                  static_cast<std::size_t>(segment->count) * size_of(args_.value_type))
                                      : args_.results_in(segment->begin, segment->end());
    Tag tag = args_.tag;
    tag.step += posted_++;
    incoming_.push_back({*segment, memory, args_.transport.post_receive(from_, tag, memory)});
    return true;
  }

  // Messages are sent in the order of steps, so received segments are forwarded after all of this rank's slice.
  std::optional<Segment> next_to_send() {
    if (const auto own = own_.next()) {
      if (reduces()) args_.make_ready(own->begin, own->end());
      return own;
    }
    if (to_be_sent_.empty()) return std::nullopt;
    const Segment next = to_be_sent_.front();
    to_be_sent_.pop_front();
    return next;
  }

  void post_sends(std::size_t limit) {
    while (sends_.size() < limit) {
      const auto segment = next_to_send();
      if (!segment) return;
      Tag tag = args_.tag;
      tag.step += static_cast<std::uint32_t>(sends_.size());
      const auto bytes = carries_values(segment->step) ? args_.values_in(segment->begin, segment->end())
                                                       : args_.results_in(segment->begin, segment->end());
      sends_.push_back(args_.transport.post_send(to_, tag, bytes));
    }
  }

  // Receives the next segment. This rank's values are made ready while it is in transit; results are completed after it
  // was forwarded.
  void receive() {
    const Incoming incoming = incoming_.front();
    const Segment& segment = incoming.segment;
    if (carries_values(segment.step)) args_.make_ready(segment.begin, segment.end());
    args_.transport.wait(incoming.request, args_.deadline);
    incoming_.pop_front();
    if (carries_values(segment.step)) fold(incoming);
    if (segment.step + 1 < last_step_) {
      to_be_sent_.push_back({.step = segment.step + 1, .begin = segment.begin, .count = segment.count});
    }
    post_receive();
  }

  // The segment from the left contains the ranks before this one, so it is the first operand.
  void fold(const Incoming& incoming) const {
    const Segment& segment = incoming.segment;
    const bool completes = segment.step == n_ - 2;
    const auto own = args_.values_in(segment.begin, segment.end());
    const void* inputs[] = {incoming.memory.data(), own.data()};
    Reduction reduction = args_.reduction;
    reduction.prescale = 1.0;
    if (!completes) reduction.postscale = 1.0;
    reduce(reduction, args_.value_type, inputs, completes ? reduction.dtype : args_.value_type,
           completes ? args_.results_in(segment.begin, segment.end()).data() : own.data(),
           static_cast<std::size_t>(segment.count));
  }

  const SlicedReduction& args_;
  const int n_, first_step_, last_step_;
  const int to_, from_;

  SegmentCursor own_;               // the slice that starts here
  SegmentCursor expected_;          // segments to be received
  std::deque<Segment> to_be_sent_;  // received segments to be forwarded
  std::deque<Incoming> incoming_;   // posted
  std::vector<Transport::RequestId> sends_;
  std::uint32_t posted_ = 0;  // number of receives

  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_slot_bytes_ = 0;
};

// With one member it only scales and rounds. An allgather has results only, and calls no hooks.
void run_ring(const SlicedReduction& args, RingSteps steps) {
  const int n = args.ranks();
  if (n == 1) {
    if (steps != RingSteps::allgather) args.reduce_alone();
    return;
  }
  const int first = steps == RingSteps::allgather ? n - 1 : 0;
  const int last = steps == RingSteps::reduce_scatter ? n - 1 : 2 * (n - 1);
  const auto element_bytes = static_cast<std::int64_t>(size_of(args.value_type));
  Ring(args, first, last, kRingSegmentBytes / element_bytes).run();
}

}  // namespace

void ring_allreduce(const SlicedReduction& args) { run_ring(args, RingSteps::all); }

void ring_reducescatter(const SlicedReduction& args) { run_ring(args, RingSteps::reduce_scatter); }

void ring_allgather(const ExchangeContext& context, std::byte* buffer, std::span<const std::int64_t> block_bounds) {
  run_ring({.transport = context.transport,
            .members = context.members,
            .position = context.position,
            .reduction = {.dtype = DType::uint8},
            .value_type = DType::uint8,
            .results = buffer,
            .slice_bounds = block_bounds,
            .tag = context.tag,
            .deadline = context.deadline},
           RingSteps::allgather);
}

}  // namespace hvd
