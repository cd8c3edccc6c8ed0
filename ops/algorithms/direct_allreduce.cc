// Allreduce by direct exchange: every rank receives from each other rank the values for its own slice, reduces them,
// and sends the result to each.
//
//   1. In step i (1 <= i < N) position p sends slice p-i of its values to p-i, and receives slice p from p+i.
//   2. p folds the N contributions to slice p at once, in the canonical order, scales and rounds.
//   3. In step i, p sends its result to p+i, and receives that of p-i.
//
// Latencies: 2 if all steps run at once; a ring has 2(N-1). Bytes sent and received per rank: 2(N-1)/N of the buffer,
// as on a ring, and all of them in the tensors' own type, since no partial sums are sent. The steps are staggered, so
// that no rank is the target of two others in the same step, and up to four of them run at a time; fewer, down to one,
// with long slices, because messages of several senders to one receiver queue up before its link. Best for medium sizes
// and few ranks.
// Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH",
// 2005 (pairwise exchange).
#include "ops/algorithms/allreduce.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

namespace hvd {

namespace {

class DirectExchange {
 public:
  explicit DirectExchange(const SlicedReduction& args) : args_(args), n_(args.ranks()), own_(args.position) {}

  void run() {
    scatter_values();
    wait(0);
    args_.fold_slice(own_, from_);
    gather_results();
  }

 private:
  struct Step {
    int source;
    Transport::RequestId receive, send;
  };

  void exchange(int source, std::span<std::byte> incoming, int target, std::span<const std::byte> outgoing) {
    wait(direct_steps_in_flight(std::max(incoming.size(), outgoing.size())) - 1);
    Tag tag = args_.tag;
    tag.step += gathering_ ? 1 : 0;
    const auto receive = args_.transport.post_receive(args_.member(source), tag, incoming);
    const auto send = args_.transport.post_send(args_.member(target), tag, outgoing);
    steps_.push_back({source, receive, send});
  }

  // Waits until at most `steps` steps are in flight.
  void wait(int steps) {
    for (; steps_.size() > static_cast<std::size_t>(steps); steps_.pop_front()) {
      const Step& step = steps_.front();
      args_.transport.wait(step.receive, args_.deadline);
      if (gathering_) args_.make_complete(args_.begin_of(step.source), args_.end_of(step.source));
      args_.transport.wait(step.send, args_.deadline);
    }
  }

  void scatter_values() {
    const std::int64_t begin = args_.begin_of(own_), end = args_.end_of(own_);
    const auto own = args_.values_in(begin, end);
    contributions_ = std::make_unique_for_overwrite<std::byte[]>(own.size() * static_cast<std::size_t>(n_ - 1));
    from_.assign(static_cast<std::size_t>(n_), own.data());
    std::byte* place = contributions_.get();
    for (int i = 1; i < n_; ++i, place += own.size()) {
      const int source = args_.around(own_ + i), target = args_.around(own_ - i);
      from_[static_cast<std::size_t>(source)] = place;
      args_.make_ready(args_.begin_of(target), args_.end_of(target));
      exchange(source, {place, own.size()}, target, args_.values_in(args_.begin_of(target), args_.end_of(target)));
    }
    args_.make_ready(begin, end);
  }

  void gather_results() {
    gathering_ = true;
    const auto own = args_.results_in(args_.begin_of(own_), args_.end_of(own_));
    for (int i = 1; i < n_; ++i) {
      const int source = args_.around(own_ - i), target = args_.around(own_ + i);
      exchange(source, args_.results_in(args_.begin_of(source), args_.end_of(source)), target, own);
      if (i == 1) args_.make_complete(args_.begin_of(own_), args_.end_of(own_));
    }
    wait(0);
  }

  const SlicedReduction& args_;
  const int n_, own_;
  std::unique_ptr<std::byte[]> contributions_;
  std::vector<const std::byte*> from_;  // by position: its contribution to this rank's slice
  std::deque<Step> steps_;              // in flight
  bool gathering_ = false;
};

}  // namespace

void direct_allreduce(const SlicedReduction& args) {
  if (args.ranks() == 1) return args.reduce_alone();
  DirectExchange(args).run();
}

}  // namespace hvd
