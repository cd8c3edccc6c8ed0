// A model of Horovod's published control plane, by formulas over the same network, for comparison.
//
// Each rank's thread sleeps until the next cycle of 1 ms. In a cycle the ranks first AND a vector of bits, one for each
// tensor in their caches. Every rank sends whole requests for tensors that are not cached to rank 0, which answers all.
// Sources: A. Sergeev, M. Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018
// (arXiv:1802.05799), the coordinator at rank 0; N. Laanait et al., "Exascale deep learning for scientific inverse
// problems", 2019 (arXiv:1909.11150) and J. Romero et al., "Accelerating collective communication in data parallel
// training across deep learning frameworks", NSDI 2022, the bit vector; T. Kurth et al., "Exascale deep learning for
// climate analytics", SC18 (arXiv:1810.01993), what the star costs at 27,360 ranks.
//
// Assumptions in its favour: every rank has something to send at the same time; of the processors' time only the
// network's overheads count; requests are as short as hvd's; the sizes that precede a gather cost nothing.
#pragma once

#include <algorithm>
#include <bit>

#include "simulation/network.h"

namespace hvd::simulation {

struct HorovodJob {
  int ranks = 1;
  std::size_t tensors = 0;
  std::size_t request_bytes = 0;   // of all tensors: sent by a rank
  std::size_t response_bytes = 0;  // of all tensors: sent by rank 0
};

// How long a rank waits for the end of a sleep, on average.
inline constexpr Duration kHorovodCycle = 1ms;
inline constexpr Duration kHorovodPause = kHorovodCycle / 2;

// Times without the pause.
struct HorovodRound {
  Duration requests{};      // all tensors new: from all ranks to rank 0 and back, after the bits
  Duration star_of_bits{};  // all tensors cached: the bits to rank 0 and back,
  Duration tree_of_bits{};  // or by recursive doubling, as in an MPI library
};

// Rank 0 receives a message from each of the others, or sends one to each: its processor and its connection work
// concurrently, so the slower one counts.
inline Duration one_with_all(int others, std::size_t bytes, const LinkParameters& link) {
  if (others == 0) return {};
  const Duration each = std::max(link.overhead, gap(link, with_headers(bytes)));
  return link.overhead + link.latency + others * each;
}

inline Duration exchange(std::size_t bytes, const LinkParameters& link) {
  return 2 * link.overhead + link.latency + gap(link, with_headers(bytes));
}

inline HorovodRound horovod_round(const HorovodJob& job, const NetworkParameters& network) {
  const LinkParameters& link = network.between_hosts;
  const std::size_t bits = (job.tensors + 7) / 8;
  const int others = job.ranks - 1;
  HorovodRound round;
  round.star_of_bits = 2 * one_with_all(others, bits, link);
  round.tree_of_bits = std::bit_width(static_cast<unsigned>(others)) * exchange(bits, link);
  round.requests = round.tree_of_bits + one_with_all(others, job.request_bytes, link) +
                   one_with_all(others, job.response_bytes, link);
  return round;
}

}  // namespace hvd::simulation
