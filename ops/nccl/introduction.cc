#include "ops/nccl/introduction.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/nccl/library.h"

namespace hvd::nccl {

static_assert(std::is_trivially_copyable_v<Introduction>);

void Introduction::say(const std::string& what) {
  const std::size_t length = std::min(what.size(), sizeof text - 1);
  std::memcpy(text, what.data(), length);
  text[length] = '\0';
}

// Received texts need not be zero-terminated.
std::string Introduction::said() const { return {text, strnlen(text, sizeof text)}; }

std::vector<Introduction> introduce(Backend& host, const CollectiveCall& about, const Introduction& own) {
  const auto ranks = static_cast<std::size_t>(about.set->size());
  std::vector<Introduction> all(ranks);
  CollectiveCall call;
  call.collective = Collective::allgather;
  call.dtype = DType::uint8;
  call.set = about.set;
  call.sequence = about.sequence;
  call.pieces = {{.input = &own, .output = all.data(), .elements = sizeof own}};
  call.counts = {std::vector<std::int64_t>(ranks, sizeof own)};
  host.run(call);
  return all;
}

Status verdict_on(const std::vector<Introduction>& ranks, const std::function<std::string(int)>& describe_rank) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].version != 0) continue;
    return {StatusCode::unsupported,
            "GPU tensors need the CUDA driver and NCCL on every rank, but on " + describe_rank(static_cast<int>(rank)) +
                " " + ranks[rank].said() +
                ". Install NCCL (nvidia-nccl-cu12), or name it with HVD_NCCL_LIB; or set HVD_GPU_THROUGH_HOST=1, and "
                "they go through the host's memory, which is slow"};
  }
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].version == ranks[0].version) continue;
    return {StatusCode::mismatch, "all ranks need the same version of NCCL, but " + describe_rank(0) + " has " +
                                      ranks[0].said() + " and " + describe_rank(static_cast<int>(rank)) + " has " +
                                      ranks[rank].said() + ": HVD_NCCL_LIB names one"};
  }
  return {};
}

}  // namespace hvd::nccl
