// A fault at every step of every allreduce: the rank that has it raises it, the others end too, and whoever ends well
// has the right result.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "ops/algorithms/allreduce.h"
#include "tests/support/catch.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/timeouts.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int kFaultRanks = 4;
constexpr int kFaultyRank = 1;
constexpr std::int64_t kFaultSlice = 20'000;  // two segments

// An algorithm, and how many messages each of four ranks sends, receives, and waits for both times.
struct Case {
  AllreduceAlgorithm algorithm;
  int messages;

  int calls(Fault::At at) const { return at == Fault::At::wait ? 2 * messages : messages; }
};

Case any_case() {
  return GENERATE(values<Case>({{AllreduceAlgorithm::one_shot, 3},
                                {AllreduceAlgorithm::bruck, 2},
                                {AllreduceAlgorithm::direct, 2 * 3},
                                {AllreduceAlgorithm::halving_doubling, 3 + 2 + 2},
                                {AllreduceAlgorithm::ring, 6 * 2}}));
}

SlicedReduction sum_of_floats(std::vector<float>& tensor, Transport& transport, const std::vector<int>& members,
                              const std::vector<std::int64_t>& bounds, Duration timeout) {
  auto* const memory = reinterpret_cast<std::byte*>(tensor.data());
  return {.transport = transport,
          .members = members,
          .position = transport.rank(),
          .reduction = {.dtype = DType::float32},
          .value_type = DType::float32,
          .values = memory,
          .results = memory,
          .slice_bounds = bounds,
          .tag = {},
          .deadline = deadline_after(timeout)};
}

// One allreduce of ones in which rank 1 has the fault. Fails if a rank ends well with wrong sums.
std::vector<Status> allreduce_with(const Fault& fault, AllreduceAlgorithm algorithm, TransportKind kind,
                                   const AbortFlag& abort) {
  const std::vector<int> members{0, 1, 2, 3};
  std::vector<std::int64_t> bounds;
  for (std::int64_t slice = 0; slice <= kFaultRanks; ++slice) bounds.push_back(slice * kFaultSlice);
  std::atomic<bool> wrong = false;
  const auto is_wrong = [](float value) { return value != kFaultRanks; };
  auto ended = run_transport_ranks({.kind = kind, .size = kFaultRanks, .abort = &abort},
                                   [&](std::unique_ptr<Transport> transport) {
                                     const int rank = transport->rank();
                                     if (rank == kFaultyRank)
                                       transport = std::make_unique<FaultyTransport>(std::move(transport), fault);
                                     std::vector<float> tensor(static_cast<std::size_t>(bounds.back()), 1.0F);
                                     run_allreduce(algorithm, sum_of_floats(tensor, *transport, members, bounds, 20s));
                                     if (std::any_of(tensor.begin(), tensor.end(), is_wrong)) wrong = true;
                                   });
  CHECK(!wrong);
  return ended;
}

}  // namespace

TEST_CASE("a peer lost at any step ends the allreduce on every rank", "[timed]") {
  const Case c = any_case();
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp);
  const auto at = GENERATE(Fault::At::post_send, Fault::At::post_receive, Fault::At::wait);
  CAPTURE(algorithm_name(c.algorithm), transport_name(kind), static_cast<int>(at));
  const AbortFlag abort;
  for (int call = 0; call < c.calls(at); ++call) {
    CAPTURE(call);
    const TimePoint started = Clock::now();
    const auto ended = allreduce_with({.at = at, .call = call, .action = lose_peer}, c.algorithm, kind, abort);
    CHECK(Clock::now() - started < testing::at_most(5s));
    CHECK(ended[kFaultyRank].message() == "injected: lost the connection");
    for (const Status& status : ended) CHECK((status.ok() || status.code() == StatusCode::peer_lost));
  }
  // The counts above are right: one more call than there are, and the fault never happens.
  const Fault never{.at = at, .call = c.calls(at), .action = lose_peer};
  for (const Status& status : allreduce_with(never, c.algorithm, kind, abort)) CHECK(status.ok());
}

TEST_CASE("an abort raised at any step reaches every rank that still works") {
  const Case c = any_case();
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp);
  CAPTURE(algorithm_name(c.algorithm), transport_name(kind));
  const Status reason(StatusCode::peer_lost, "rank 9 on host-z died");
  for (int call = 0; call < c.calls(Fault::At::wait); call += 5) {
    CAPTURE(call);
    AbortFlag abort;
    const Fault fault{.at = Fault::At::wait, .call = call, .action = [&] {
                        abort.raise(reason);
                        lose_peer();
                      }};
    const auto ended = allreduce_with(fault, c.algorithm, kind, abort);
    for (int rank = 0; rank < kFaultRanks; ++rank) {
      const Status& status = ended[static_cast<std::size_t>(rank)];
      CAPTURE(rank, status.message());
      if (rank != kFaultyRank) CHECK((status.ok() || status == reason));
    }
  }
}

TEST_CASE("a silent rank is a timeout that names it, not a hang") {
  const std::vector<int> members{0, 1};
  const std::vector<std::int64_t> bounds{0, 10, 20};
  std::atomic<bool> done{false};
  const auto ended = run_transport_ranks({.kind = TransportKind::tcp, .size = 2}, [&](auto transport) {
    std::vector<float> tensor(20, 1.0F);
    if (transport->rank() == 1) {
      const Deadline timeout = deadline_after(20s);
      while (!done && Clock::now() < timeout) std::this_thread::yield();
      return;
    }
    try {
      run_allreduce(AllreduceAlgorithm::ring, sum_of_floats(tensor, *transport, members, bounds, 50ms));
    } catch (...) {
      done = true;
      throw;
    }
  });
  CHECK(ended[0].code() == StatusCode::timeout);
  CHECK(ended[0].message().find("for rank 1 on host (pid 0) to send process set 0, call 0, step 0, 40 bytes") !=
        std::string::npos);
}
