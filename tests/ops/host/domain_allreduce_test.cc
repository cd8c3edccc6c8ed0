// Ranks in groups: whatever the form of the collective, each group's sum in rank order and then the groups'.
#include <cstring>
#include <string>

#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/jitter.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

// One tensor's result, by a plain loop over the groups.
Buffer reduced_in_domains(const Reduction& reduction, std::int64_t elements, const Domains& groups, std::size_t piece) {
  const DType accumulator = accumulator_of(reduction.dtype);
  const auto count = static_cast<std::size_t>(elements);
  Reduction first = reduction, second = reduction;
  first.postscale = second.prescale = 1.0;
  std::vector<Buffer> partials;
  std::vector<const void*> all;
  for (const auto& group : groups) {
    std::vector<Buffer> tensors;
    std::vector<const void*> inputs;
    for (const int rank : group) tensors.push_back(tensor(reduction.dtype, elements, rank, piece));
    for (const Buffer& one : tensors) inputs.push_back(one.data());
    partials.emplace_back(count * size_of(accumulator));
    reduce(first, reduction.dtype, inputs, accumulator, partials.back().data(), count);
  }
  for (const Buffer& partial : partials) all.push_back(partial.data());
  Buffer out(count * size_of(reduction.dtype));
  reduce(second, accumulator, all, reduction.dtype, out.data(), count);
  return out;
}

void check(HostRank& self, const Reduction& reduction, const Domains& groups, const std::vector<std::int64_t>& sizes,
           bool in_arena) {
  std::vector<Buffer> buffers;
  std::vector<Piece> pieces;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    buffers.push_back(tensor(reduction.dtype, sizes[p], self.rank, p));
    void* memory = buffers.back().data();
    if (in_arena) {
      memory = self.arena->allocate(buffers.back().size());
      write_bytes(memory, buffers.back());
    }
    pieces.push_back({memory, memory, sizes[p]});
  }
  self.group->allreduce(pieces, reduction);
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    const Buffer expected = reduced_in_domains(reduction, sizes[p], groups, p);
    require(has_bytes(pieces[p].output, expected), std::to_string(sizes[p]) + " elements of " +
                                                       dtype_name(reduction.dtype) + (in_arena ? " in the arena" : ""));
    if (in_arena) self.arena->free(pieces[p].output);
  }
}

}  // namespace

TEST_CASE("host: ranks in groups have one result, whatever the form") {
  const Domains groups = GENERATE(Domains{{0, 1, 2}, {3, 4, 5}}, Domains{{0, 2, 4}, {1, 3, 5}},
                                  Domains{{0, 1}, {2, 3, 4, 5}}, Domains{{0, 5}, {1, 4}, {2, 3}});
  const Jitter jitter(3);
  on_host_ranks({.ranks_by_host = {6}, .groups = groups, .arena_bytes = 4 << 20}, [&](HostRank& self) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64, DType::int16}) {
      const Reduction reduction{.dtype = dtype, .prescale = dtype == DType::int16 ? 1.0 : 0.7, .postscale = 0.5};
      for (const std::int64_t size : {1, 14, 1000, 5003, 40'000}) check(self, reduction, groups, {size}, false);
      check(self, reduction, groups, {3, 0, 5003, 12'345}, false);
      check(self, reduction, groups, {100'000}, true);
    }
  });
}

TEST_CASE("host: a reducescatter of ranks in groups adds in the same order") {
  const Domains groups{{0, 2, 4}, {1, 3, 5}};
  on_host_ranks({.ranks_by_host = {6}, .groups = groups}, [&](HostRank& self) {
    constexpr std::int64_t kRows = 6000;
    const Buffer input = tensor(DType::float32, kRows, self.rank, 0);
    Buffer output(kRows / 6 * 4);
    const Piece piece{input.data(), output.data(), kRows};
    self.group->reducescatter(std::span(&piece, 1), {std::vector<std::int64_t>(6, kRows / 6)}, {});
    const Buffer whole = reduced_in_domains({}, kRows, groups, 0);
    const auto first = output.size() * static_cast<std::size_t>(self.rank);
    require(std::memcmp(output.data(), whole.data() + first, output.size()) == 0, "own rows");
  });
}
