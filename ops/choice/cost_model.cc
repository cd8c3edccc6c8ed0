#include "ops/choice/cost_model.h"

#include <algorithm>
#include <bit>

#include "ops/algorithms/allreduce.h"

namespace hvd {

namespace {

// The factor by which messages of several senders to one receiver are slower than those of one.
constexpr double kCrowding = 1.05;

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
    const double on_wire = slice * costs.per_byte * oversubscription();
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
  double oversubscription() const { return ranks > 2 ? kCrowding : 1.0; }

  const LinkCosts& costs;
  const int ranks;
  const double n, bytes, slice, widening;
  const double folded_per_byte;
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

}  // namespace hvd
