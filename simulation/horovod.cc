#include "simulation/horovod.h"

#include <bit>

namespace hvd::simulation {

namespace {

// Rank 0 receives a message from each of the others, or sends one to each: its processor and its connection work
// concurrently, so the slower one counts.
Duration one_with_all(int others, std::size_t bytes, const LinkParameters& link) {
  if (others == 0) return {};
  const Duration each = std::max(link.overhead, gap(link, with_headers(bytes)));
  return link.overhead + link.latency + others * each;
}

Duration exchange(std::size_t bytes, const LinkParameters& link) {
  return 2 * link.overhead + link.latency + gap(link, with_headers(bytes));
}

}  // namespace

HorovodRound horovod_round(const HorovodJob& job, const NetworkParameters& network) {
  const LinkParameters& link = network.between_hosts;
  const std::size_t bits = (job.tensors + 7) / 8;
  const int others = job.ranks - 1;
  HorovodRound round;
  round.star_of_bits = 2 * one_with_all(others, bits, link);
  round.tree_of_bits = std::bit_width(static_cast<unsigned>(others)) * exchange(bits, link);
  round.requests =
      round.tree_of_bits + one_with_all(others, job.request_bytes, link) + one_with_all(others, job.answer_bytes, link);
  return round;
}

}  // namespace hvd::simulation
