// Results whose rows the other ranks decide, in memory that the caller gives.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/core/runtime/refused.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

using Values = std::vector<float>;

RunOptions on_several_hosts() {
  const std::vector<int> shared{3}, apart{1, 1, 1}, mixed{2, 1};
  const RunOptions way =
      GENERATE_COPY(from_range(std::vector<RunOptions>{{{shared}, {}}, {{apart}, {}}, {{mixed}, {}}}));
  UNSCOPED_INFO(way.layout.name());
  return way;
}

TensorArgument rows_of(float* data, std::size_t rows) {
  return {.data = data, .shape = {static_cast<std::int64_t>(rows)}};
}

Values numbers_from(int first, std::size_t count) {
  Values values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  return values;
}

// How an allgather of `mine` into `output` ends.
Status gather(Runtime& runtime, Values& mine, Values& output) {
  CallArguments call{.collective = Collective::allgather, .name = "rows"};
  call.inputs = {rows_of(mine.data(), mine.size())};
  call.outputs = {rows_of(output.data(), output.size())};
  CallerReference handle = runtime.submit(call);
  require(handle->wait(deadline_after(60s)), "it is not done");
  return handle->completion.status();
}

}  // namespace

TEST_CASE("given outputs: rows of all ranks come into the caller's memory, however many each has") {
  REQUIRE_NOTHROW(run_ranks(on_several_hosts(), [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (const std::size_t rows : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
      Values expected;
      for (int r = 0; r < 3; ++r) {
        const Values part = numbers_from(r, rows + static_cast<std::size_t>(r));
        expected.insert(expected.end(), part.begin(), part.end());
      }
      Values mine = numbers_from(rank, rows + static_cast<std::size_t>(rank)), all(expected.size());
      require(gather(runtime, mine, all).ok(), "the allgather has failed");
      require(all == expected, "the allgather gave other rows");
    }
  }));
}

TEST_CASE("given outputs: rows are exchanged into the caller's memory") {
  REQUIRE_NOTHROW(run_ranks(on_several_hosts(), [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (const std::int64_t scale : {1, 50'000}) {
      CallArguments call{.collective = Collective::alltoall, .splits = {scale, 2 * scale, 3 * scale}};
      Values mine(static_cast<std::size_t>(6 * scale), static_cast<float>(rank)),
          received(static_cast<std::size_t>(3 * (rank + 1) * scale));
      call.inputs = {rows_of(mine.data(), mine.size())};
      call.outputs = {rows_of(received.data(), received.size())};
      perform(runtime, call);
      for (std::size_t i = 0; i < received.size(); ++i) {
        require(received[i] == static_cast<float>(i / (received.size() / 3)), "other rows than were sent");
      }
    }
  }));
}

TEST_CASE("given outputs: one of the wrong size fails on its rank alone, and is unchanged") {
  REQUIRE_NOTHROW(run_ranks(on_several_hosts(), [](Runtime& runtime) {
    const bool is_wrong = runtime.topology().rank == 1;
    for (int turn = 0; turn < 20; ++turn) {
      Values mine(2, 1), all(is_wrong ? 5 : 6, 7);
      const Status end = gather(runtime, mine, all);
      if (is_wrong) {
        require(end.code() == StatusCode::invalid_argument, "it has not failed");
        require(end.message().find("output 0 has 5 rows, but the result 6") != std::string::npos, end.message());
        require(all == Values(5, 7), "it was changed");
      } else {
        require(end.ok(), end.message());
        require(all == Values(6, 1), "it has other rows");
      }
    }
  }));
}

TEST_CASE("given outputs: what overlaps an input, or has other dimensions, is refused") {
  REQUIRE_NOTHROW(run_ranks({{{2}}, {}}, [](Runtime& runtime) {
    Values memory(100);
    const auto refuse = [&](Collective collective, TensorArgument input, TensorArgument output, const char* words) {
      CallArguments call{.collective = collective};
      call.inputs = {input};
      call.outputs = {output};
      require_refused([&] { runtime.submit(call); }, words);
    };
    const auto other = static_cast<std::size_t>(1 - runtime.topology().rank);
    refuse(Collective::allgather, rows_of(memory.data() + other * 4, 4), rows_of(memory.data(), 8),
           "overlaps an input");
    refuse(Collective::allgather, rows_of(memory.data() + 9, 4), rows_of(memory.data() + 2, 8), "overlaps an input");
    refuse(Collective::alltoall, rows_of(memory.data(), 4), rows_of(memory.data(), 4), "overlaps an input");
    refuse(Collective::reducescatter, rows_of(memory.data(), 4), rows_of(memory.data(), 2), "overlaps an input");
    refuse(Collective::allgather, {.data = memory.data(), .shape = {2, 3}},
           {.data = memory.data() + 50, .shape = {4, 2}}, "[4, 3] is needed");
    refuse(Collective::alltoall, rows_of(memory.data(), 4),
           {.data = memory.data() + 50, .dtype = DType::int32, .shape = {4}}, "float32[4] is needed");
    refuse(Collective::allgather, rows_of(memory.data(), 4), {.data = memory.data() + 50, .shape = {}}, "is needed");
  }));
}

}  // namespace hvd::testing
