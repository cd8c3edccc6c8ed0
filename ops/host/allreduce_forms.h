// The forms of an allreduce inside a host, a file each; host_allreduce() chooses among them. All produce the same bits.
// `total`: the elements of all pieces, more than 0, with at least two ranks.
#pragma once

#include <cstdint>
#include <span>

#include "core/operation/collective_call.h"
#include "ops/host/chunks.h"
#include "ops/host/host_context.h"
#include "ops/reduction/reduce.h"

namespace hvd {

// Up to Window::kNoteBytes.
void note_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                    std::int64_t total);
// Up to one chunk, if ranks outnumber CPUs.
void by_last_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                       std::int64_t total);
// In chunks. The first one may have been published before. Results of another type than the tensors' are accumulators.
void one_step_allreduce(HostContext& context, Publication publication, std::span<const Piece> pieces,
                        const Reduction& reduction, std::int64_t total);
void sliced_allreduce(HostContext& context, Publication publication, std::span<const Piece> outputs,
                      const Reduction& reduction, DType result_type, std::int64_t total);
// After a step in which all ranks have published places (places.h): in the arena, or addresses.
void resident_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                        std::int64_t total);
void reading_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                       std::int64_t total);

}  // namespace hvd
