// Predicts the time of an allreduce between hosts, by a formula for each algorithm (pure), and measures the costs of
// the links for it.
//
// The model. A message of b bytes takes latency + b * per_byte (R. W. Hockney, "The communication challenge for MPP:
// Intel Paragon and Meiko CS-2", 1994); links transmit in both directions at once; a rank spends per_message on each
// further message of a step, and reduce_per_byte on each byte that it adds to a sum. Below: N ranks, S bytes, m = S/N,
// a = latency, o = per_message, B = per_byte, G = reduce_per_byte.
//
//   one_shot           a + S B + (N-2) max(o, S B) + (N-1) S G
//   bruck              ceil(log2 N) a + (N-1) S (B + G)
//   direct             2 max(ceil((N-1)/f) (a + m B'), a + m B' + (N-2) max(o, m B')) + (N-1) m G
//   halving_doubling   2 log2(P) a + (P-1)/P S (max(B, G) + B)     P: the largest power of two up to N
//                      and 2 a + S (max(B, G) + B) more unless P = N
//   ring               (N-1) (step(max(B, G)) + step(B)), step(R) = max(m R, a + min(m, 64 KB) R)
//
// These are the usual formulas (R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
// operations in MPICH", 2005; E. Chan, M. Heimlich, A. Purkayastha and R. van de Geijn, "Collective communication:
// theory, practice, and experience", 2007), adapted to the algorithms here:
// - Handling a message overlaps with transmission: the slower of the two counts. The same holds for arithmetic where
//   segments are reduced while the next ones arrive; otherwise it is added.
// - A ring's slice of several segments hides the latency of the next step behind its own bytes.
// - A direct exchange has f messages in transit, from one to four by their length, and several senders to one
//   receiver slow each other down (incast): B' is a little more than B (kIncastPenalty, measured).
// - Where sums have a longer type than the tensors (float16, bfloat16), transmitted partial sums are longer too: S and
//   m count `widening` times in the first half of a ring and of halving and doubling.
//
// Only operations that IEEE 754 rounds exactly are used, and none are contracted: the same numbers on every machine.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "ops/algorithms/allreduce.h"
#include "ops/transport/transport.h"

namespace hvd {

// In seconds. Those of the slowest link, since the ranks wait for each other.
struct LinkCosts {
  double latency = 0;          // of a message, from posting to reception, in a step that all ranks take
  double per_byte = 0;         // of a long message
  double per_message = 0;      // of each further message in the same step
  double reduce_per_byte = 0;  // to add a byte to a sum, in cache
};

double predicted_seconds(AllreduceAlgorithm algorithm, const LinkCosts& costs, const AllreduceSize& size);

// Chooses the transport between hosts: the one over which the ring takes less time for a gradient of a megabyte.
struct TransportChoice {
  bool mpi;            // MPI's messages; otherwise TCP
  std::string reason;  // for display
};
TransportChoice choose_transport(const LinkCosts& mpi, const LinkCosts& tcp, int ranks);

// Measures the link costs at start; all ranks obtain the same values.
//
// All members are measured at once, on their ring, as in later use: in a step each sends to its right neighbour and
// receives from its left one.
//
//   latency          steps of one empty message; the fastest of a few batches
//   per_message      a step of many empty messages
//   per_byte         messages that grow by a factor of four, until the next one would take too long. Many links allow a
//                    burst before their rate applies: only the last and longest message counts, the fastest of a few
//   reduce_per_byte  one reduction, in cache
//
// Every rank uses the maximum over all ranks for each value, since ranks wait for the slowest. How far to continue is
// decided in the same way, so that all ranks take the same steps. It takes 15 ms at 10 Gb/s, 25 ms at 1 Gb/s, and up to
// 50 ms where a message takes a millisecond, if the ranks are not descheduled.
struct LinkProbe {
  Transport& transport;
  // The ranks whose links are measured: global ranks, in ring order. The other ranks call too, and receive the result.
  std::span<const int> members;
  Deadline deadline;  // for all ranks to arrive, and for each wait
  std::function<TimePoint()> now = Clock::now;
};

// All ranks of the transport call together, before any collective. Returns the same on all. Throws the transport's
// errors.
LinkCosts measure_links(const LinkProbe& probe);

}  // namespace hvd
