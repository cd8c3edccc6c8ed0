// Allreduce of tensors in the arena: the same bits as anywhere else, whoever has his there.
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "ops/host/collectives.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

using Counts = std::vector<std::int64_t>;

constexpr std::size_t kArena = 16 << 20;

// The tensors of one rank, in the arena or not.
class Tensors {
 public:
  Tensors(HostRank& self, DType dtype, const Counts& sizes, bool in_arena, bool in_place)
      : self_(self), dtype_(dtype), sizes_(sizes), in_arena_(in_arena) {
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      const Buffer values = tensor(dtype, sizes[p], self.rank, p);
      void* input = make(values.size());
      write_bytes(input, values);
      pieces.push_back({input, in_place ? input : make(values.size()), sizes[p]});
    }
  }
  ~Tensors() {
    if (!in_arena_) return;
    for (void* memory : made_) self_.arena->free(memory);
  }

  void expect_sums(const Reduction& reduction, const std::string& what) const {
    for (std::size_t p = 0; p < sizes_.size(); ++p) {
      const Buffer expected = reduced(reduction, sizes_[p], self_.size, p);
      require(has_bytes(pieces[p].output, expected), what + ", " + dtype_name(dtype_) + ", piece " + std::to_string(p));
    }
  }

  std::vector<Piece> pieces;

 private:
  void* make(std::size_t bytes) {
    if (in_arena_) return made_.emplace_back(self_.arena->allocate(bytes));
    return buffers_.emplace_back(bytes + 1).data();
  }

  HostRank& self_;
  DType dtype_;
  Counts sizes_;
  bool in_arena_;
  std::vector<void*> made_;
  std::vector<Buffer> buffers_;
};

// Enough for the arena to matter, in every type.
const Counts kOne{200'003};
const Counts kSeveral{1, 170'001, 0, 17, 60'000};

}  // namespace

TEST_CASE("host: tensors in the arena are reduced to the same bits") {
  const int ranks = GENERATE(2, 3, 5);
  if (kSanitized && ranks == 5) return;
  for (const int cpus : {64, 1}) {
    on_host_ranks({.ranks_by_host = {ranks}, .cpus = cpus, .arena_bytes = kArena}, [](HostRank& self) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::int8, DType::float64}) {
        if (kSanitized && dtype == DType::float64) continue;
        for (const Counts& sizes : {kOne, kSeveral}) {
          for (const bool in_place : {true, false}) {
            const Reduction reduction{.dtype = dtype, .postscale = dtype == DType::int8 ? 1.0 : 1.0 / 3};
            Tensors tensors(self, dtype, sizes, true, in_place);
            host_allreduce(*self.context, tensors.pieces, reduction);
            tensors.expect_sums(reduction, in_place ? "in place" : "out of place");
          }
        }
      }
    });
  }
}

TEST_CASE("host: some ranks have their tensors in the arena and some have not") {
  for (const int cpus : {64, 1}) {
    on_host_ranks({.ranks_by_host = {4}, .cpus = cpus, .arena_bytes = kArena}, [](HostRank& self) {
      for (int who = 0; who < 16; who += kSanitized ? 5 : 1) {  // a bit for each rank
        Tensors tensors(self, DType::float32, kSeveral, (who >> self.rank & 1) != 0, who % 2 == 0);
        host_allreduce(*self.context, tensors.pieces, {});
        tensors.expect_sums({}, "mixed " + std::to_string(who));
      }
    });
  }
}

TEST_CASE("host: inputs in the arena and outputs elsewhere count as elsewhere") {
  on_host_ranks({.ranks_by_host = {2}, .arena_bytes = kArena}, [](HostRank& self) {
    Tensors tensors(self, DType::float32, kOne, true, true), elsewhere(self, DType::float32, kOne, false, true);
    tensors.pieces[0].output = elsewhere.pieces[0].output;
    host_allreduce(*self.context, tensors.pieces, {});
    tensors.expect_sums({}, "outputs elsewhere");
  });
}

TEST_CASE("host: a joined rank has nothing in the arena") {
  on_host_ranks({.ranks_by_host = {3}, .arena_bytes = kArena}, [](HostRank& self) {
    Tensors tensors(self, DType::float32, kOne, true, true);
    const bool away = self.rank == 2;
    std::vector<Piece> pieces = tensors.pieces;
    if (away) pieces[0] = {nullptr, nullptr, kOne[0]};
    host_allreduce(*self.context, pieces, {});
    if (away) return;
    const Buffer expected = reduced({}, kOne[0], 2, 0);
    require(has_bytes(pieces[0].output, expected), "two of three");
  });
}
