// The collectives of one host's ranks through shared memory, and the backend that performs them.
//
// Each has its own form over the window (window.h), and processes the tensors as one sequence of elements: copying a
// chunk of it into this rank's slot packs and publishes it at once, and results are copied directly to the outputs.
// There is no fusion buffer, and a chunk stays in the second-level cache from the first copy to the last.
//
//   allreduce, up to 112 bytes          one step, the data beside the step's number: every rank reduces everything,
//                                       or the last to publish does, if ranks > CPUs.
//   allreduce, little, ranks > CPUs     one step: the last rank to publish reduces for all before it releases them.
//   allreduce, 2 ranks or little data   one step a chunk: publish, every rank reduces everything.   S + nS read
//   allreduce, all tensors in the arena each reduces a slice directly from and to all tensors.           S + S moved
//   allreduce, where that is faster     read the others' tensors, write into them.              2S (n-1)/n + S/n read
//   allreduce otherwise                 publish; each reduces a slice for all; gather the result.   S + S + S read
//   reducescatter                       publish in one block for each rank; each reduces its own.   S + S read
//   allgather, alltoall                 publish; copy what is for this rank.
//   broadcast                           the root publishes; the others copy.
//   these, where that is faster         read the others' inputs; a large allgather writes into the others' outputs.
// (S: bytes of all tensors. Bytes read per rank; an allreduce through pairwise messages reads about twice as much.)
//
// Sums are taken in rank order, element by element, so that a result depends neither on which rank reduces nor on how
// tensors are fused or split.
//
// An input may be in the same memory as its output, in an allgather also at its place in the output. A joined rank
// (null input) takes part as if its tensors contained the operation's identity. Lists of counts are those of
// CollectiveCall. A collective may be entered as asking (Window::enter); those without bytes take no step, and cannot
// be declined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/bootstrap/topology.h"
#include "core/execution/backend.h"
#include "core/operation/collective_call.h"
#include "ops/host/host_context.h"
#include "ops/reduction/reduce.h"

namespace hvd {

using HostCounts = std::vector<std::vector<std::int64_t>>;

void host_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction);
void host_allgather(HostContext& context, std::span<const Piece> pieces, const HostCounts& counts, DType dtype);
void host_broadcast(HostContext& context, std::span<const Piece> pieces, DType dtype, int root);
void host_reducescatter(HostContext& context, std::span<const Piece> pieces, const HostCounts& counts,
                        const Reduction& reduction);
void host_alltoall(HostContext& context, const Piece& piece, const HostCounts& counts, DType dtype);
void host_barrier(HostContext& context);
// Returns the votes of all ranks, by rank.
std::vector<std::byte> exchange_host_votes(HostContext& context, std::byte own);

// First half of an allreduce over several hosts: reduces all pieces, as accumulators without postscale, to the pieces'
// outputs at the leader (local rank 0). The other ranks have no outputs.
void reduce_to_leader(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction);
// Second half: a broadcast from the leader.
void broadcast_from_leader(HostContext& context, std::span<const Piece> pieces, DType dtype);

// The forms of an allreduce, in small_allreduce.cc (inline_payload, by_last), chunked_allreduce.cc (one_step, sliced),
// resident_allreduce.cc and reading_allreduce.cc; host_allreduce() chooses among them (ops/choice/host_choice.h). All
// produce the same bits. `total`: the elements of all pieces, more than 0, with at least two ranks.

// For up to Window::kPayloadBytes. Also in two halves, of which the first waits for no rank if the window can open a
// step.
void inline_payload_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                              std::int64_t total);
void begin_inline_payload_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                                    std::int64_t total);
void finish_inline_payload_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                                     std::int64_t total);
// For up to one chunk, if ranks outnumber CPUs.
void by_last_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                       std::int64_t total);
// Chunk by chunk; the first chunk may already have been published. Results of another type than the tensors' are
// accumulators.
void one_step_allreduce(HostContext& context, Publication publication, std::span<const Piece> pieces,
                        const Reduction& reduction, std::int64_t total);
void sliced_allreduce(HostContext& context, Publication publication, std::span<const Piece> outputs,
                      const Reduction& reduction, DType result_type, std::int64_t total);
// After a step in which all ranks have published locations (TensorLocation): in the arena, or addresses.
void resident_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                        std::int64_t total);
void reading_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                       std::int64_t total);

// The backend for process sets of all the ranks of one host. `context` belongs to this rank's host.
std::unique_ptr<Backend> make_host_backend(std::shared_ptr<HostContext> context, const Topology& topology,
                                           InstructionSet instruction_set = InstructionSet::automatic);

}  // namespace hvd
