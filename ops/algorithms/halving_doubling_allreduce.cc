// Allreduce by recursive halving and doubling: partners at distances P/2, P/4, ..., 1 send each other half of the range
// that they still reduce; then results are exchanged with the same partners in reverse order.
//
//   1. With P the largest power of two up to N, the first 2(N-P) positions pair up: the even one sends all its values
//      to the odd one, and is idle until the end. P ranks are left.
//   2. log2 P steps: exchange one half of the range with the partner, fold the received values into the other half,
//      which is the range of the next step. In the end each rank has one P-th, scales and rounds it.
//   3. log2 P steps: exchange results, so that the range doubles.
//   4. The odd positions of step 1 send everything to their even ones.
//
// Latencies: 2 log2 P, and 2 more unless N is a power of two. Bytes sent and received per rank: 2(P-1)/P of the values
// (2 S more for the pairs of step 1). Between the direct exchange and the ring: for medium sizes and many ranks.
//
// The tree of partners determines the order of sums: the same in every run and on every rank, but not the canonical
// order, so that the algorithm changes the bits. It is used only where that is allowed.
// Source: R. Rabenseifner, "Optimization of collective reduction operations", 2004.
#include "ops/algorithms/allreduce.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

namespace hvd {

namespace {

// Received values are folded in pieces of this size, while the next ones arrive.
constexpr std::int64_t kFoldedBytes = 64 << 10;

struct Range {
  std::int64_t begin, end;
};

class HalvingDoubling {
 public:
  explicit HalvingDoubling(const SlicedReduction& args)
      : args_(args),
        whole_(static_cast<int>(std::bit_floor(static_cast<unsigned>(args.ranks())))),
        extra_(args.ranks() - whole_),
        values_tag_(args.tag),
        results_tag_{.process_set = args.tag.process_set, .step = args.tag.step + 1, .sequence = args.tag.sequence},
        incoming_(std::make_unique_for_overwrite<std::byte[]>(args.values_in(0, args.elements()).size())),
        ranges_{{0, args.elements()}} {}

  void run() {
    const Range everything = ranges_.front();
    const bool pairs_up = args_.position < 2 * extra_;
    const bool gives_all = pairs_up && args_.position % 2 == 0;
    args_.make_all_ready();
    if (gives_all) {
      send_values(args_.position + 1, everything);
      receive_results(args_.position + 1, everything);
    } else {
      if (pairs_up) fold_values(args_.position - 1, everything);
      for (int distance = whole_ / 2; distance > 0; distance /= 2) halve(distance);
      finish(ranges_.back());
      for (int distance = 1; distance < whole_; distance *= 2) double_back(distance);
      if (pairs_up) send_results(args_.position - 1, everything);
    }
    for (const auto request : sends_) args_.transport.wait(request, args_.deadline);
    args_.make_all_complete();
  }

 private:
  // Converts between positions and the numbers of the P ranks that take part to the end.
  int number_of(int position) const { return position < 2 * extra_ ? position / 2 : position - extra_; }
  int position_of(int number) const { return number < extra_ ? 2 * number + 1 : number + extra_; }

  std::vector<Range> segments_of(Range range) const {
    const std::int64_t longest = kFoldedBytes / static_cast<std::int64_t>(size_of(args_.value_type));
    std::vector<Range> segments;
    for (std::int64_t begin = range.begin; begin < range.end; begin += longest) {
      segments.push_back({begin, std::min(begin + longest, range.end)});
    }
    return segments;
  }

  void send_values(int to, Range range) {
    for (const Range& segment : segments_of(range)) {
      sends_.push_back(
          args_.transport.post_send(args_.member(to), values_tag_, args_.values_in(segment.begin, segment.end)));
    }
  }

  void send_results(int to, Range range) {
    sends_.push_back(
        args_.transport.post_send(args_.member(to), results_tag_, args_.results_in(range.begin, range.end)));
  }

  void receive_results(int from, Range range) {
    const auto results = args_.results_in(range.begin, range.end);
    args_.transport.wait(args_.transport.post_receive(args_.member(from), results_tag_, results), args_.deadline);
  }

  // Folds the values of a position while they arrive.
  void fold_values(int from, Range range) {
    struct Incoming {
      std::span<std::byte> own, theirs;
      Transport::RequestId request;
    };
    std::vector<Incoming> segments;
    std::byte* place = incoming_.get();
    for (const Range& segment : segments_of(range)) {
      const auto own = args_.values_in(segment.begin, segment.end);
      const std::span<std::byte> theirs(place, own.size());
      segments.push_back({own, theirs, args_.transport.post_receive(args_.member(from), values_tag_, theirs)});
      place += own.size();
    }
    const Reduction fold{
        .dtype = args_.reduction.dtype, .op = args_.reduction.op, .instruction_set = args_.reduction.instruction_set};
    for (const Incoming& segment : segments) {
      args_.transport.wait(segment.request, args_.deadline);
      const void* const inputs[] = {segment.own.data(), segment.theirs.data()};
      reduce(fold, args_.value_type, inputs, args_.value_type, segment.own.data(),
             segment.own.size() / size_of(args_.value_type));
    }
  }

  // Of two partners the lower one keeps the lower half.
  void halve(int distance) {
    const int partner = position_of(number_of(args_.position) ^ distance);
    const Range whole = ranges_.back();
    const std::int64_t middle = whole.begin + (whole.end - whole.begin) / 2;
    const Range lower{whole.begin, middle}, upper{middle, whole.end};
    const bool keeps_lower = args_.position < partner;
    send_values(partner, keeps_lower ? upper : lower);
    ranges_.push_back(keeps_lower ? lower : upper);
    fold_values(partner, ranges_.back());
  }

  void finish(Range range) const {
    const void* const sums[] = {args_.values_in(range.begin, range.end).data()};
    Reduction last = args_.reduction;
    last.prescale = 1.0;
    reduce(last, args_.value_type, sums, last.dtype, args_.results_in(range.begin, range.end).data(),
           static_cast<std::size_t>(range.end - range.begin));
  }

  void double_back(int distance) {
    const int partner = position_of(number_of(args_.position) ^ distance);
    const Range own = ranges_.back();
    ranges_.pop_back();
    const Range whole = ranges_.back();
    send_results(partner, own);
    receive_results(partner, args_.position < partner ? Range{own.end, whole.end} : Range{whole.begin, own.begin});
  }

  const SlicedReduction& args_;
  const int whole_;                     // P
  const int extra_;                     // N - P
  const Tag values_tag_, results_tag_;  // two ranks exchange values at most once, then results at most once
  std::unique_ptr<std::byte[]> incoming_;
  std::vector<Range> ranges_;  // from everything down to what this rank reduces
  std::vector<Transport::RequestId> sends_;
};

}  // namespace

void halving_doubling_allreduce(const SlicedReduction& args) {
  if (args.ranks() == 1) return args.reduce_alone();
  HalvingDoubling(args).run();
}

}  // namespace hvd
