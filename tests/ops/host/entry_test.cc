// Collectives that ranks ask for without having agreed on them: all take part, or nobody does.
#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "ops/host/collectives.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

// A float32 call of any collective on this rank, in place where that is possible; what it takes and gives.
class Asked {
 public:
  Asked(const HostRank& self, Collective collective, std::int64_t elements, ReduceOp op = ReduceOp::sum) : self_(self) {
    for (int rank = 0; rank < self.size; ++rank) set_.ranks.push_back(rank);
    const auto ranks = static_cast<std::size_t>(self.size);
    call_.collective = collective;
    call_.op = op;
    call_.set = &set_;
    call_.entry = EntryMode::asking;
    input_.assign(static_cast<std::size_t>(elements), static_cast<float>(self.rank + 1));
    output_.assign(input_.size() * ranks, -1.0F);
    Piece piece{.input = input_.data(), .output = input_.data(), .elements = elements};
    const std::vector<std::int64_t> even(ranks, elements / self.size);
    switch (collective) {
      case Collective::allgather:
        piece.output = output_.data();
        call_.counts = {std::vector<std::int64_t>(ranks, elements)};
        break;
      case Collective::reducescatter:
        piece.output = output_.data();
        call_.counts = {even};
        break;
      case Collective::alltoall:
        piece.output = output_.data();
        call_.counts.assign(ranks, even);
        break;
      default: break;
    }
    if (collective != Collective::barrier) call_.pieces = {piece};
  }

  CollectiveCall& call() { return call_; }

  bool untouched() const {
    const auto all = [](const std::vector<float>& values, float value) {
      return std::all_of(values.begin(), values.end(), [value](float v) { return v == value; });
    };
    return all(input_, static_cast<float>(self_.rank + 1)) && all(output_, -1.0F);
  }

  bool right() const {
    const float sum = static_cast<float>(self_.size * (self_.size + 1)) / 2;
    if (input_.empty()) return true;
    switch (call_.collective) {
      case Collective::allreduce:
        return call_.op == ReduceOp::adasum || (input_.front() == sum && input_.back() == sum);
      case Collective::allgather: return output_.front() == 1 && output_.back() == static_cast<float>(self_.size);
      case Collective::broadcast: return input_.front() == 1 && input_.back() == 1;
      case Collective::alltoall:
        return output_.front() == 1 && output_[input_.size() - 1] == static_cast<float>(self_.size);
      case Collective::reducescatter: return output_.front() == sum;
      default: return true;
    }
  }

 private:
  const HostRank& self_;
  ProcessSet set_;
  CollectiveCall call_;
  std::vector<float> input_, output_;
};

bool is_declined(Backend& backend, const CollectiveCall& call) {
  try {
    backend.run(call);
    return false;
  } catch (const Declined&) {
    return true;
  }
}

constexpr Collective kAll[] = {Collective::allreduce, Collective::allgather,     Collective::broadcast,
                               Collective::alltoall,  Collective::reducescatter, Collective::barrier};

}  // namespace

TEST_CASE("entry: if one rank declines nobody has done anything, and the next collective is as ever") {
  // Ranks that believe in 64 CPUs spin, which takes its time where there are fewer.
  const auto [cpus, ranks] = GENERATE(table<int, int>({{64, 1}, {64, 2}, {64, 3}, {1, 1}, {1, 2}, {1, 3}, {1, 6}}));
  if (kSanitized && ranks != (cpus == 1 ? 3 : 2)) return;
  const std::int64_t elements = 60 * GENERATE(0, 1, 300, 3000);  // of 4 bytes; the last is read from memory
  INFO(cpus << " CPUs, " << ranks << " ranks, " << elements << " elements");
  on_host_ranks({.ranks_by_host = {ranks}, .cpus = cpus, .first_step = 0xfffffff0}, [&](HostRank& self) {
    const auto backend = make_host_backend(self.context, self.topology);
    std::uint32_t call_id = 0;
    const int rounds = cpus > ranks && ranks > 2 ? 1 : kSanitized ? 2 : 3;
    for (int round = 0; round < rounds; ++round) {
      for (const Collective collective : kAll) {
        for (int decliner = 0; decliner < self.size; ++decliner) {
          const std::string what =
              std::string(collective_name(collective)) + " declined by " + std::to_string(decliner);
          Asked asked(self, collective, elements);
          asked.call().call_id = ++call_id;
          asked.call().driving_thread = round % 2 == 0 ? DrivingThread::engine : DrivingThread::caller;
          require(backend->can_be_asked(*asked.call().set), "cannot be asked");
          if (self.rank == decliner) {
            backend->decline(*asked.call().set, call_id);
          } else {
            require(is_declined(*backend, asked.call()), what + " took place");
          }
          require(asked.untouched(), what + " has changed something");
          if (self.rank == decliner && self.size == 1) continue;
          require(!is_declined(*backend, asked.call()), what + " was declined again");
          require(asked.right(), what + " is wrong afterwards");
        }
      }
    }
  });
}

TEST_CASE("entry: an alltoall in which everyone keeps its own can be declined too") {
  const int cpus = GENERATE(64, 1);
  on_host_ranks({.ranks_by_host = {3}, .cpus = cpus}, [&](HostRank& self) {
    const auto backend = make_host_backend(self.context, self.topology);
    Asked asked(self, Collective::alltoall, 3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      asked.call().counts[rank] = {0, 0, 0};
      asked.call().counts[rank][rank] = 3;
    }
    if (self.rank == 1) {
      backend->decline(*asked.call().set, 0);
    } else {
      require(is_declined(*backend, asked.call()), "took place");
    }
    require(asked.untouched(), "has changed something");
    require(!is_declined(*backend, asked.call()), "declined");
  });
}

TEST_CASE("entry: no step looks declined that nobody has declined, not even where numbers wrap") {
  on_host_ranks({.ranks_by_host = {3}, .cpus = 1, .first_step = 0xffffffe0}, [&](HostRank& self) {
    const auto backend = make_host_backend(self.context, self.topology);
    for (std::uint32_t i = 0; i < 80; ++i) {
      Asked asked(self, Collective::allreduce, 2);
      asked.call().call_id = i;
      if (i % 2 == 0) asked.call().entry = EntryMode::negotiated;
      require(!is_declined(*backend, asked.call()), "declined");
      require(asked.right(), "wrong sum in collective " + std::to_string(i));
    }
  });
}

TEST_CASE("entry: adasum can be asked for too") {
  on_host_ranks({.ranks_by_host = {4}}, [&](HostRank& self) {
    const auto backend = make_host_backend(self.context, self.topology);
    Asked asked(self, Collective::allreduce, 1000, ReduceOp::adasum);
    asked.call().call_id = 1;
    if (self.rank == 2) {
      backend->decline(*asked.call().set, 1);
    } else {
      require(is_declined(*backend, asked.call()), "took place");
    }
    require(asked.untouched(), "has changed something");
    require(!is_declined(*backend, asked.call()), "declined");
  });
}

TEST_CASE("entry: ranks in different collectives are found out") {
  const int cpus = GENERATE(64, 1);
  std::atomic<int> found{0};
  on_host_ranks({.ranks_by_host = {3}, .cpus = cpus, .timeout = 500ms}, [&](HostRank& self) {
    const auto backend = make_host_backend(self.context, self.topology);
    Asked asked(self, Collective::allreduce, 100);
    asked.call().call_id = self.rank == 1 ? 8 : 7;
    try {
      backend->run(asked.call());
    } catch (const Internal& error) {
      require(std::string(error.what()).find("different collectives") != std::string::npos, error.what());
      ++found;
    } catch (const Timeout&) {
    }
  });
  CHECK(found >= 1);
}

TEST_CASE("entry: who asks and waits for long has its callback called") {
  const int cpus = GENERATE(64, 1);
  std::atomic<bool> asked_to_decline{false};
  on_host_ranks({.ranks_by_host = {2}, .cpus = cpus}, [&](HostRank& self) {
    const auto backend = make_host_backend(self.context, self.topology);
    backend->set_late_callback(20ms, [&] {
      asked_to_decline = true;
      asked_to_decline.notify_all();
      return false;
    });
    Asked asked(self, Collective::allreduce, 100);
    if (self.rank == 0) {
      require(is_declined(*backend, asked.call()), "took place");
    } else {
      asked_to_decline.wait(false);
      backend->decline(*asked.call().set, 0);
    }
    require(asked.untouched(), "has changed something");
  });
}
