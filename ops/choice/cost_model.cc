#include "ops/choice/cost_model.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace hvd {

namespace {

// The factor by which messages of several senders to one receiver (incast) are slower than those of one.
constexpr double kIncastPenalty = 1.05;

struct Model {
  Model(const LinkCosts& link_costs, const AllreduceSize& size)
      : costs(link_costs),
        ranks(size.ranks),
        n(size.ranks),
        bytes(static_cast<double>(size.bytes)),
        slice(bytes / n),
        widening(size.widening),
        folded_per_byte(std::max(costs.per_byte, costs.reduce_per_byte)) {}

  double one_shot() const {
    return costs.latency + to_each_other_rank(bytes * costs.per_byte) + (n - 1) * bytes * costs.reduce_per_byte;
  }

  double bruck() const {
    const int rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
    return rounds * costs.latency + (n - 1) * bytes * (costs.per_byte + costs.reduce_per_byte);
  }

  double direct() const {
    const auto in_flight = static_cast<int>(direct_steps_in_flight(static_cast<std::size_t>(slice)));
    const int rounds = (ranks - 1 + in_flight - 1) / in_flight;
    const double on_wire = slice * costs.per_byte * incast_factor();
    const double exchange = costs.latency + to_each_other_rank(on_wire);
    return 2 * std::max(rounds * (costs.latency + on_wire), exchange) + (n - 1) * slice * costs.reduce_per_byte;
  }

  // Messages with this transmission time.
  double to_each_other_rank(double on_wire) const { return on_wire + (n - 2) * std::max(costs.per_message, on_wire); }

  double halving_doubling() const {
    const auto whole = std::bit_floor(static_cast<unsigned>(ranks));
    const double p = whole;
    const double per_byte = widening * folded_per_byte + costs.per_byte;
    const double among_whole = 2 * (std::bit_width(whole) - 1) * costs.latency + (p - 1) / p * bytes * per_byte;
    return p == n ? among_whole : among_whole + 2 * costs.latency + bytes * per_byte;
  }

  double ring() const {
    return (n - 1) * (ring_step(widening * slice, folded_per_byte) + ring_step(slice, costs.per_byte));
  }

  double ring_step(double step_bytes, double per_byte) const {
    const double segment = std::min(step_bytes, static_cast<double>(kRingSegmentBytes));
    return std::max(step_bytes * per_byte, costs.latency + segment * per_byte);
  }

  // Two ranks have one sender each.
  double incast_factor() const { return ranks > 2 ? kIncastPenalty : 1.0; }

  const LinkCosts& costs;
  const int ranks;
  const double n, bytes, slice, widening;
  const double folded_per_byte;
};

// ---- Measurement

// Attempts per measurement: at least the first number, whatever time it takes, and up to the second if time permits. A
// process that was descheduled must not look like a slow link.
constexpr int kSureAttempts = 2, kAttempts = 3;
// Steps of one empty message, in batches: the first one short, to warm up.
constexpr int kFirstSteps = 4, kSteps = 16, kBatches = 4;
constexpr double kLatencyBudget = 5e-3;  // seconds
// Number of messages in a step of many.
constexpr int kBurst = 16;
constexpr std::size_t kFirstMessage = 64 << 10, kLongestMessage = 4 << 20, kGrowth = 4;
constexpr double kMessageBudget = 25e-3;  // seconds, for all messages that grow
constexpr std::size_t kReducedElements = 16 << 10;
constexpr int kReductions = 4;

// Up to this many ranks, all ranks exchange messages directly; beyond, fewer messages matter more than latency.
constexpr int kOneShotRanks = 16;

// Tags: the first one of agreements, and how many tags an algorithm may use.
constexpr std::uint32_t kAgreements = 1 << 20, kTagsOfOne = 64;

// Bounds of the values for the model, independent of clocks and received data.
constexpr double kShortest = 1e-12, kLongest = 1e3;

double plausible(double measured) {
  if (!(measured > kShortest)) return kShortest;  // also handles NaN
  return std::min(measured, kLongest);
}

// Returns the seconds to add a byte to a sum.
double measure_reduction() {
  const std::vector<float> first(kReducedElements, 1.0f), second(kReducedElements, 2.0f);
  std::vector<float> out(kReducedElements);
  const void* const inputs[] = {first.data(), second.data()};
  double fastest = std::numeric_limits<double>::max();
  for (int i = 0; i < kReductions; ++i) {
    const TimePoint start = Clock::now();
    reduce({.dtype = DType::float32}, DType::float32, inputs, DType::float32, out.data(), kReducedElements);
    fastest = std::min(fastest, seconds(Clock::now() - start));
  }
  return fastest / static_cast<double>(kReducedElements * sizeof(float));
}

class Prober {
 public:
  explicit Prober(const LinkProbe& probe)
      : probe_(probe),
        everyone_(all_ranks(probe.transport.size())),
        members_(probe.members.size()),
        position_(static_cast<std::size_t>(std::ranges::find(probe.members, probe.transport.rank()) -
                                           probe.members.begin())) {}

  LinkCosts measure() {
    dissemination_barrier({probe_.transport, everyone_, probe_.transport.rank(), agreement_tag(), probe_.deadline});
    const double latency = measure_latency();
    const double per_message = measure_per_message(latency);
    const double per_byte = measure_per_byte(latency);
    return {.latency = latency,
            .per_byte = plausible(per_byte),
            .per_message = plausible(per_message),
            .reduce_per_byte = agree(measure_reduction())};
  }

 private:
  // Returns the maximum of all ranks' numbers, on all ranks.
  double agree(double own) {
    double largest = 0;
    std::vector<std::int64_t> bounds(everyone_.size() + 1, 1);
    bounds.front() = 0;
    const auto algorithm = everyone_.size() <= kOneShotRanks ? AllreduceAlgorithm::one_shot  //
                                                             : AllreduceAlgorithm::halving_doubling;
    run_allreduce(algorithm, {.transport = probe_.transport,
                              .members = everyone_,
                              .position = probe_.transport.rank(),
                              .reduction = {.dtype = DType::float64, .op = ReduceOp::max},
                              .value_type = DType::float64,
                              .values = reinterpret_cast<std::byte*>(&own),
                              .results = reinterpret_cast<std::byte*>(&largest),
                              .slice_bounds = bounds,
                              .tag = agreement_tag(),
                              .deadline = probe_.deadline});
    return plausible(largest);
  }

  // Takes `count` steps of `messages` messages of `bytes` bytes. Returns the best time of a step on the slowest rank,
  // including the earlier steps that own_best covers.
  double time_steps(int count, int messages, std::size_t bytes, double& own_best) {
    if (position_ == members_) return agree(0);
    const TimePoint start = probe_.now();
    for (int i = 0; i < count; ++i) step(messages, bytes);
    own_best = std::min(own_best, seconds(probe_.now() - start) / count);
    return agree(own_best);
  }

  void step(int messages, std::size_t bytes) {
    const int to = probe_.members[(position_ + 1) % members_];
    const int from = probe_.members[(position_ + members_ - 1) % members_];
    const Tag tag = step_tag();
    std::vector<Transport::RequestId> requests;
    for (int i = 0; i < messages; ++i) {
      requests.push_back(probe_.transport.post_receive(from, tag, {incoming_.data(), bytes}));
      requests.push_back(probe_.transport.post_send(to, tag, {outgoing_.data(), bytes}));
    }
    for (const auto request : requests) probe_.transport.wait(request, probe_.deadline);
  }

  double measure_latency() {
    double own_best = kLongest, spent = 0;
    int count = kFirstSteps;
    for (int batch = 1;; ++batch) {
      const double best = time_steps(count, 1, 0, own_best);
      spent += count * best;
      const int affordable = static_cast<int>(std::clamp<double>((kLatencyBudget - spent) / best, 0, kSteps));
      if (batch == kBatches || (batch >= kSureAttempts && affordable == 0)) return best;
      count = std::max(affordable, kFirstSteps);
    }
  }

  double measure_per_message(double latency) {
    double own_best = kLongest, best = 0;
    for (int attempt = 0; attempt < kAttempts; ++attempt) best = time_steps(1, kBurst, 0, own_best);
    return (best - latency) / (kBurst - 1);
  }

  double measure_per_byte(double latency) {
    double spent = 0;
    for (std::size_t bytes = kFirstMessage;; bytes *= kGrowth) {
      if (position_ < members_) {
        outgoing_.resize(bytes);
        incoming_.resize(bytes);
      }
      double own_best = kLongest;
      for (int attempt = 1;; ++attempt) {
        const double best = time_steps(1, 1, bytes, own_best);
        const bool longer = bytes < kLongestMessage && spent + (attempt + kGrowth) * best < kMessageBudget;
        const bool again =
            attempt < kSureAttempts || (attempt < kAttempts && spent + (attempt + 1) * best < kMessageBudget);
        if (!longer && again) continue;
        if (!longer) return (best - latency) / static_cast<double>(bytes);
        spent += attempt * best;
        break;
      }
    }
  }

  // Collectives number their calls from 1. Other ranks do not take part in the steps of members.
  Tag step_tag() { return {.process_set = 0, .step = steps_++, .sequence = 0}; }
  Tag agreement_tag() { return {.process_set = 0, .step = kAgreements + kTagsOfOne * agreements_++, .sequence = 0}; }

  const LinkProbe& probe_;
  const std::vector<int> everyone_;
  const std::size_t members_;
  const std::size_t position_;  // among them; equal to members_ if this rank is not a member
  std::uint32_t steps_ = 0, agreements_ = 0;
  std::vector<std::byte> outgoing_, incoming_;
};

}  // namespace

double predicted_seconds(AllreduceAlgorithm algorithm, const LinkCosts& costs, const AllreduceSize& size) {
  if (size.ranks < 2) return 0;
  const Model model(costs, size);
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return model.one_shot();
    case AllreduceAlgorithm::bruck: return model.bruck();
    case AllreduceAlgorithm::direct: return model.direct();
    case AllreduceAlgorithm::halving_doubling: return model.halving_doubling();
    case AllreduceAlgorithm::ring: return model.ring();
  }
  return 0;
}

TransportChoice choose_transport(const LinkCosts& mpi, const LinkCosts& tcp, int ranks) {
  const AllreduceSize typical{.bytes = 1 << 20, .ranks = ranks, .widening = 1};
  const double mpi_seconds = predicted_seconds(AllreduceAlgorithm::ring, mpi, typical);
  const double tcp_seconds = predicted_seconds(AllreduceAlgorithm::ring, tcp, typical);
  const bool better = mpi_seconds < tcp_seconds;
  return {better, std::string("between hosts ") + (better ? "MPI's messages" : "TCP") +
                      " carry the data: a megabyte on the ring takes " + std::to_string(mpi_seconds * 1e3) +
                      " ms through MPI, " + std::to_string(tcp_seconds * 1e3) + " ms through TCP"};
}

LinkCosts measure_links(const LinkProbe& probe) { return Prober(probe).measure(); }

}  // namespace hvd
