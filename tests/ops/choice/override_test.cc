// HVD_ALGORITHM, to the end: the algorithm that it names is the one that runs, which its messages show, and sums are
// right.
#include <string>

#include "ops/algorithms/transport_backend.h"
#include "ops/choice/algorithm_table.h"
#include "tests/support/catch.h"
#include "tests/support/link_costs.h"
#include "tests/support/recording_transport.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int kRanks = 4;

// What rank 0 sends in an allreduce of so many floats, which is checked.
std::vector<SentMessage> sent_by_rank_0(const AllreduceChoice& choice, std::size_t elements) {
  std::vector<SentMessage> sent;
  run_all_well({.kind = TransportKind::local, .size = kRanks}, [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    std::vector<SentMessage> others;
    const auto backend = make_transport_backend(
        "test", std::make_unique<RecordingTransport>(std::move(transport), rank == 0 ? sent : others), 20s, choice);
    const ProcessSet set{.id = 0, .ranks = {0, 1, 2, 3}};
    std::vector<float> values(elements, static_cast<float>(rank + 1));
    CollectiveCall call;
    call.dtype = DType::float32;
    call.set = &set;
    call.pieces.push_back({values.data(), values.data(), static_cast<std::int64_t>(elements)});
    backend->run(call);
    if (values != std::vector<float>(elements, 10.0f)) throw std::runtime_error("the sum is wrong");
  });
  return sent;
}

AllreduceChoice choice_of(const char* text) {
  return AllreduceChoice({kTenGigabit, false, parse_algorithm_override(text, false)});
}

}  // namespace

TEST_CASE("the algorithm that HVD_ALGORITHM names is the one that runs") {
  constexpr std::size_t kElements = 4000;
  constexpr std::size_t kAll = kElements * sizeof(float), kSlice = kAll / kRanks;
  struct Case {
    const char* text;
    std::vector<SentMessage> sent;
  };
  const std::vector<Case> cases{
      {"allreduce:-=one_shot", {{1, kAll}, {2, kAll}, {3, kAll}}},
      {"allreduce:-=bruck", {{3, kAll}, {2, 2 * kAll}}},
      {"allreduce:-=direct", {{3, kSlice}, {2, kSlice}, {1, kSlice}, {1, kSlice}, {2, kSlice}, {3, kSlice}}},
      {"allreduce:-=halving_doubling", {{2, 2 * kSlice}, {1, kSlice}, {1, kSlice}, {2, 2 * kSlice}}},
      {"allreduce:-=ring", {{1, kSlice}, {1, kSlice}, {1, kSlice}, {1, kSlice}, {1, kSlice}, {1, kSlice}}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    CHECK(sent_by_rank_0(choice_of(c.text), kElements) == c.sent);
  }
}

TEST_CASE("every range has its own algorithm") {
  const auto choice = choice_of("allreduce:0-1k=ring;1k-2k=one_shot;2k-=direct");
  CHECK(sent_by_rank_0(choice, 255).size() == 6);
  CHECK(sent_by_rank_0(choice, 255)[5].peer == 1);
  CHECK(sent_by_rank_0(choice, 256).size() == 3);
  CHECK(sent_by_rank_0(choice, 511).size() == 3);
  CHECK(sent_by_rank_0(choice, 512).size() == 6);
  CHECK(sent_by_rank_0(choice, 512)[5].peer == 3);
}
