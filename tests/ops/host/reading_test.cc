// Access to each other's memory: who has it, what it gives, when it is chosen, and when it ends.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "ops/host/collectives.h"
#include "ops/host/peer_memory.h"
#include "ops/host/peer_tensors.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::string describe(int rank) { return "rank " + std::to_string(rank); }

// The process that `fork` returned has ended and been waited for.
pid_t ended_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

}  // namespace

TEST_CASE("peer memory: ranks recognise each other by a word") {
  PeerMemory own;
  PeerMemory::AccessProbe self = own.local_probe();
  CHECK(own.probe_access(std::span(&self, 1)));

  PeerMemory::AccessProbe other = self;
  other.word += 1;  // another process than it says, or another word
  CHECK_FALSE(PeerMemory().probe_access(std::span(&other, 1)));
  other = self;
  other.address = 8;
  CHECK_FALSE(PeerMemory().probe_access(std::span(&other, 1)));
  other = self;
  other.process = ended_process();
  CHECK_FALSE(PeerMemory().probe_access(std::span(&other, 1)));
}

TEST_CASE("peer memory: what is there is accessed, what is not is an error that names the rank") {
  PeerMemory own;
  PeerMemory::AccessProbe ranks[] = {own.local_probe(), own.local_probe()};
  ranks[1].process = ended_process();
  CHECK_FALSE(own.probe_access(ranks));
  const std::string text = "something in this process";
  std::string copy(text.size(), ' ');
  own.read(0, reinterpret_cast<std::uint64_t>(text.data()), copy.data(), copy.size(), describe);
  CHECK(copy == text);
  copy.assign(text.size(), ' ');
  own.write(0, reinterpret_cast<std::uint64_t>(copy.data()), text.data(), text.size(), describe);
  CHECK(copy == text);
  const auto address = reinterpret_cast<std::uint64_t>(text.data());
  for (int call = 0; call < 2; ++call) {
    CHECK(own.is_accessible(std::vector<std::uint64_t>{address, 0, address + 1}));
    CHECK_FALSE(own.is_accessible(std::vector<std::uint64_t>{address, 8}));
  }
  CHECK(own.is_alive(0));
  CHECK_FALSE(own.is_alive(1));
  for (const std::uint64_t nothing : {std::uint64_t{8}, ~std::uint64_t{0} - 4}) {
    CHECK_THROWS_AS(own.read(0, nothing, copy.data(), copy.size(), describe), PeerLost);
    CHECK_THROWS_WITH(own.read(0, nothing, copy.data(), copy.size(), describe),
                      "rank 0 no longer has the memory that it offered");
  }
  CHECK_THROWS_WITH(own.read(1, 4096, copy.data(), copy.size(), describe), "rank 1 is gone");
  CHECK_THROWS_WITH(own.write(0, 8, text.data(), text.size(), describe),
                    "rank 0 no longer has the memory that it offered");
  CHECK_THROWS_WITH(own.write(1, 4096, text.data(), text.size(), describe), "rank 1 is gone");
}

TEST_CASE("host: chunks and reading give the same bits, while they are tried and afterwards") {
  const int ranks = GENERATE(2, 3, 4);
  if (kSanitized && ranks == 4) return;
  on_host_ranks({.ranks_by_host = {ranks}, .chunk_bytes = 16 << 10}, [](HostRank& self) {
    const std::vector<std::int64_t> sizes{50'000, 0, 3, 40'001};
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (int call = 0; call < 12; ++call) {
        std::vector<Buffer> inputs, outputs;
        std::vector<Piece> pieces;
        for (std::size_t p = 0; p < sizes.size(); ++p) {
          inputs.push_back(tensor(dtype, sizes[p], self.rank, p));
          outputs.emplace_back(inputs.back().size());
        }
        for (std::size_t p = 0; p < sizes.size(); ++p) {
          const bool in_place = call % 3 == 0;
          pieces.push_back({inputs[p].data(), in_place ? inputs[p].data() : outputs[p].data(), sizes[p]});
        }
        const Reduction reduction{.dtype = dtype, .postscale = 1.0 / 3};
        host_allreduce(*self.context, pieces, reduction);
        for (std::size_t p = 0; p < sizes.size(); ++p) {
          const Buffer expected = reduced(reduction, sizes[p], self.size, p);
          require(has_bytes(pieces[p].output, expected),
                  "call " + std::to_string(call) + ", piece " + std::to_string(p));
        }
      }
    }
  });
}

TEST_CASE("host: nobody writes into the tensors of a rank that has failed") {
  std::atomic<bool> is_writing{false}, is_withdrawing{false}, has_written{false};
  on_host_ranks({.ranks_by_host = {2}}, [&](HostRank& self) {
    Window& window = self.context->window;
    if (self.rank == 1) {
      while (!is_writing) std::this_thread::yield();
      is_withdrawing = true;
      withdraw_tensors(*self.context);
      require(has_written, "a rank that has withdrawn its tensors goes on while another one writes");
    } else {
      window.writes().begin();
      require(window.writes().may_write(1), "rank 1 has not withdrawn anything");
      is_writing = true;
      while (!is_withdrawing) std::this_thread::yield();
      std::this_thread::sleep_for(20ms);
      has_written = true;
      window.writes().end();
      for (bool may_write = true; may_write; window.writes().end()) {
        window.writes().begin();
        may_write = window.writes().may_write(1);
      }
      const std::uint64_t word = 1;
      std::uint64_t target = 0;
      const auto address = reinterpret_cast<std::uint64_t>(&target);
      bool refused = false;
      try {
        write_to_peer(*self.context, 1, address, &word, sizeof word);
      } catch (const PeerLost&) {
        refused = true;
      }
      require(refused && target == 0 && !window.writes().is_writing(0), "a write into withdrawn memory");
    }
  });
}

TEST_CASE("host: nobody writes into the tensors in the arena of a rank that has failed") {
  constexpr std::int64_t kElements = 100'000;
  std::atomic<bool> has_withdrawn{false}, has_ended{false};
  on_host_ranks({.ranks_by_host = {2}, .arena_bytes = 1 << 20}, [&](HostRank& self) {
    Window& window = self.context->window;
    const Buffer values = tensor(DType::float32, kElements, self.rank, 0);
    void* const data = self.arena->allocate(values.size());
    write_bytes(data, values);
    const Piece piece{data, data, kElements};
    window.waits().begin("allreduce");
    require(publish_locations(*self.context, {&piece, 1}, sizeof(float), DataPath::window), "not in the arena");
    window.await_all();
    if (self.rank == 1) {
      withdraw_tensors(*self.context);
      window.reduction().open();  // as if it had done its part, so that rank 0 waits for nothing
      while (window.reduction().take_slice()) window.reduction().finish_slice();
      has_withdrawn = true;
      const Deadline deadline = deadline_after(20s);
      while (!has_ended && Clock::now() < deadline) std::this_thread::yield();
      require(has_ended, "rank 0 has not ended");
      require(has_bytes(data, values), "a write into withdrawn memory");
    } else {
      const Deadline deadline = deadline_after(20s);
      while (!has_withdrawn && Clock::now() < deadline) std::this_thread::yield();
      require(has_withdrawn, "rank 1 has not withdrawn its tensors");
      bool refused = false;
      try {
        resident_allreduce(*self.context, {&piece, 1}, {}, kElements);
      } catch (const PeerLost&) {
        refused = true;
      }
      has_ended = true;
      require(refused && !window.writes().is_writing(0), "a rank that has withdrawn its tensors is written to");
    }
    self.arena->free(data);
  });
}

TEST_CASE("host: a rank that is stopped while it writes is waited for, but not for ever", "[timed]") {
  on_host_ranks({.ranks_by_host = {2}}, [&](HostRank& self) {
    if (self.rank == 0) self.context->window.writes().begin();
    barrier_step(*self.context);
    if (self.rank == 0) return;
    const TimePoint before = Clock::now();
    withdraw_tensors(*self.context);
    require(Clock::now() - before >= kWithdrawTime, "it was not waited for");
  });
}

TEST_CASE("host: a joined rank has no memory to read") {
  on_host_ranks({.ranks_by_host = {3}}, [](HostRank& self) {
    for (int call = 0; call < 10; ++call) {
      Buffer data = tensor(DType::float32, 100'000, self.rank, 0);
      const bool away = self.rank == 2;
      const Piece piece{away ? nullptr : data.data(), away ? nullptr : data.data(), 100'000};
      host_allreduce(*self.context, std::span(&piece, 1), {});
      require(away || data == reduced({}, 100'000, 2, 0), "two of three, call " + std::to_string(call));
    }
  });
}

TEST_CASE("reading: what the trials of a size have decided is reported once") {
  std::vector<std::string> decisions;
  on_host_ranks({.ranks_by_host = {2}}, [&](HostRank& self) {
    if (self.rank == 0) self.context->report = [&](const std::string& text) { decisions.push_back(text); };
    Buffer data = tensor(DType::float32, 100'000, self.rank, 0);
    const Piece piece{data.data(), data.data(), 100'000};
    for (int call = 0; call < 20; ++call) host_allreduce(*self.context, std::span(&piece, 1), {});
  });
  REQUIRE(decisions.size() == 1);
  CHECK(decisions[0].find("allreduce of 256k-512k bytes in shared memory: ") == 0);
}
