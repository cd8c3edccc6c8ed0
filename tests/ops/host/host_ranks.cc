#include "tests/ops/host/host_ranks.h"

#include <cstring>
#include <numeric>

#include "ops/reduction/half.h"
#include "tests/support/random_bits.h"
#include "tests/support/transport_ranks.h"

namespace hvd::testing {

namespace {

// What one host's ranks share: the window, and the arena behind it.
struct Region {
  explicit Region(const HostRun& run, int ranks)
      : arena{.first = whole_pages(WindowMemory::region_bytes(ranks, run.chunk_bytes)),
              .part_bytes = run.arena_bytes,
              .ranks = ranks},
        memory(std::make_shared<SharedMemory>(SharedMemory::create(arena.end(), "test", arena.first))) {}
  std::span<std::byte> window() const { return {memory->data(), arena.first}; }
  ArenaLayout arena;
  std::shared_ptr<SharedMemory> memory;
};

// Makes a new region look as if `number` steps and reductions had been taken in it, to test the wrap-around.
void seed(std::span<std::byte> region, int ranks, std::uint32_t number) {
  const WindowMemory memory(region, 0, ranks, 64 * static_cast<std::size_t>(ranks));
  memory.shared->all_published.value = number;
  memory.shared->all_reduced.value = number;
  memory.shared->published = number * static_cast<std::uint32_t>(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    memory.signal(rank, WindowMemory::Milestone::published, number).value = number;
    memory.signal(rank, WindowMemory::Milestone::published, number - 1).value = number - 1;
    memory.signal(rank, WindowMemory::Milestone::reduced, number).value = number;
  }
}

}  // namespace

void on_host_ranks(const HostRun& run, const std::function<void(HostRank&)>& body) {
  std::vector<RankIdentity> identities;
  std::vector<Region> regions;
  for (std::size_t host = 0; host < run.ranks_by_host.size(); ++host) {
    const int ranks = run.ranks_by_host[host];
    const std::string name = "host-" + std::to_string(host);
    for (int i = 0; i < ranks; ++i) identities.push_back({.host_key = name, .hostname = name, .pid = 100 + i});
    regions.emplace_back(run, ranks);
    seed(regions.back().window(), ranks, run.first_step);
  }
  const auto size = static_cast<int>(identities.size());
  run_all_well({.kind = TransportKind::local, .size = size, .abort = run.abort},
               [&](std::unique_ptr<Transport> transport) {
                 const int rank = transport->rank();
                 HostRank self{rank, size, make_topology(rank, identities), nullptr, nullptr, std::move(transport)};
                 const Topology& topology = self.topology;
                 const auto host = static_cast<std::size_t>(topology.host());
                 const auto describe = [&topology, host](int local_rank) {
                   return topology.describe(topology.hosts[host][static_cast<std::size_t>(local_rank)]);
                 };
                 const WindowOptions options{.chunk_bytes = run.chunk_bytes,
                                             .cpu_use = {.ranks = topology.local_size, .cpus = run.cpus},
                                             .timeout = run.timeout};
                 const Region& region = regions[host];
                 if (run.arena_bytes > 0) {
                   self.arena = std::make_shared<TensorArena>(region.memory, region.arena, topology.local_rank);
                 }
                 self.context = std::make_shared<HostContext>(region.window(), self.arena.get(), topology.local_rank,
                                                              topology.local_size, options, run.abort, describe);
                 body(self);
               });
}

Buffer tensor(DType dtype, std::int64_t elements, int rank, std::size_t piece) {
  Buffer bytes(static_cast<std::size_t>(elements) * size_of(dtype));
  const std::uint64_t first = static_cast<std::uint64_t>(rank) << 48 ^ static_cast<std::uint64_t>(piece) << 40;
  const auto fill = [&]<typename T>(T, const auto& value_of) {
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      const T value = static_cast<T>(value_of(random_bits(first + i)));
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  };
  const auto any = [](std::uint64_t bits) { return bits; };
  const auto moderate = [](std::uint64_t bits) {  // of several magnitudes, so that a sum is rounded
    return (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * static_cast<float>(1 << (bits & 3));
  };
  switch (dtype) {
    case DType::boolean: fill(std::uint8_t{}, [](std::uint64_t bits) { return bits & 1; }); break;
    case DType::float16:
      fill(std::uint16_t{}, [&](std::uint64_t bits) { return float_to_half(moderate(bits)); });
      break;
    case DType::bfloat16:
      fill(std::uint16_t{}, [&](std::uint64_t bits) { return float_to_bfloat16(moderate(bits)); });
      break;
    case DType::float32: fill(float{}, moderate); break;
    case DType::float64: fill(double{}, moderate); break;
    case DType::int8:
    case DType::uint8: fill(std::uint8_t{}, any); break;
    case DType::int16:
    case DType::uint16: fill(std::uint16_t{}, any); break;
    case DType::int32:
    case DType::uint32: fill(std::uint32_t{}, any); break;
    case DType::int64:
    case DType::uint64: fill(std::uint64_t{}, any); break;
  }
  return bytes;
}

Buffer reduced(const Reduction& reduction, std::int64_t elements, int ranks, std::size_t piece) {
  std::vector<Buffer> tensors;
  std::vector<const void*> inputs;
  for (int rank = 0; rank < ranks; ++rank) tensors.push_back(tensor(reduction.dtype, elements, rank, piece));
  for (const Buffer& one : tensors) inputs.push_back(one.data());
  Buffer out(tensors.front().size());
  reduce(reduction, reduction.dtype, inputs, reduction.dtype, out.data(), static_cast<std::size_t>(elements));
  return out;
}

}  // namespace hvd::testing
