// Either all ranks ask and go on, or all know that one has declined; whoever comes late, never, or with nonsense.
#include "ops/algorithms/vote_exchange.h"

#include <atomic>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/transport_ranks.h"
#include "tests/support/votes.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

bool contains(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("vote exchange: every subset of ranks declines, one exchange after the other") {
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp, TransportKind::striped_tcp);
  const int ranks = GENERATE(1, 2, 3, 4, 5, 6, 7, 8, 9);
  CAPTURE(transport_name(kind), ranks);
  const ProcessSet set = everyone(ranks);
  std::atomic<int> wrong{0};
  run_all_well({.kind = kind, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    const auto votes = make_transport_vote_exchange(std::move(transport), 20s);
    for (std::uint32_t decliners = 0; decliners < 1U << ranks; ++decliners) {
      const bool declined = cast_vote(*votes, set, decliners, (decliners >> rank & 1) != 0);
      wrong += declined != (decliners != 0);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("vote exchange: who asks says so each time that it has waited for so long, until that is enough") {
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp);
  const bool declines = GENERATE(false, true);  // the late rank
  constexpr int kRanks = 5, kLate = 3;
  CAPTURE(transport_name(kind), declines);
  const ProcessSet set = everyone(kRanks);
  std::vector<std::atomic<int>> calls(kRanks);
  std::atomic<int> enough{0}, wrong{0};
  run_all_well({.kind = kind, .size = kRanks}, [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    const auto votes = make_transport_vote_exchange(std::move(transport), 20s);
    votes->set_late_callback(5ms, [&, rank] {
      const bool again = ++calls[static_cast<std::size_t>(rank)] < 3;
      enough += again ? 0 : 1;
      return again;
    });
    const bool late = rank == kLate;
    while (late && enough < kRanks - 1) std::this_thread::yield();
    if (late) std::this_thread::sleep_for(20ms);  // in which nobody calls any more
    wrong += cast_vote(*votes, set, 1, late && declines) != declines;
  });
  CHECK(wrong == 0);
  for (int rank = 0; rank < kRanks; ++rank) CHECK(calls[static_cast<std::size_t>(rank)] == (rank == kLate ? 0 : 3));
}

TEST_CASE("vote exchange: who declines waits for the others without calling back") {
  std::atomic<int> calls{0};
  const ProcessSet set = everyone(2);
  run_all_well({.kind = TransportKind::tcp, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    const bool late = transport->rank() == 1;
    const auto votes = make_transport_vote_exchange(std::move(transport), 20s);
    votes->set_late_callback(1ms, [&calls] { return ++calls < 1000; });
    if (late) std::this_thread::sleep_for(50ms);
    cast_vote(*votes, set, 1, !late);
  });
  CHECK(calls == 0);
}

TEST_CASE("vote exchange: a rank that is gone is named by those who wait for it, and nobody goes on") {
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp);
  const int ranks = GENERATE(2, 3, 4, 7);
  CAPTURE(transport_name(kind), ranks);
  const ProcessSet set = everyone(ranks);
  const auto ended = run_transport_ranks({.kind = kind, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
    if (transport->rank() == 1) return;
    const auto votes = make_transport_vote_exchange(std::move(transport), 20s);
    votes->set_late_callback(5ms, [] { return true; });
    votes->ask(set, 1);
  });
  bool named = false;
  for (int rank = 0; rank < ranks; ++rank) {
    const Status& status = ended[static_cast<std::size_t>(rank)];
    CAPTURE(rank, status.message());
    if (rank == 1) continue;
    CHECK(status.code() == StatusCode::peer_lost);
    named = named || contains(status, "lost the connection to rank 1");
  }
  CHECK(named);
}

TEST_CASE("vote exchange: a rank that never comes is a timeout that names it, however often it was said to be late") {
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp);
  const bool calls_back = GENERATE(false, true);
  CAPTURE(transport_name(kind), calls_back);
  const ProcessSet set = everyone(2);
  std::atomic<bool> over{false};
  const auto ended = run_transport_ranks({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    while (transport->rank() == 1) {
      if (over) return;
      std::this_thread::yield();
    }
    const auto votes = make_transport_vote_exchange(std::move(transport), 60ms);
    if (calls_back) votes->set_late_callback(5ms, [] { return true; });
    try {
      votes->ask(set, 1);
    } catch (...) {
      over = true;
      throw;
    }
  });
  CAPTURE(ended[0].message());
  CHECK(ended[0].code() == StatusCode::timeout);
  CHECK(contains(ended[0], "for rank 1 on host (pid 0) to send process set 5, call 1"));
}

TEST_CASE("vote exchange: ranks that ask for different collectives are found out") {
  const ProcessSet set = everyone(2);
  const auto ended =
      run_transport_ranks({.kind = TransportKind::tcp, .size = 2}, [&](std::unique_ptr<Transport> transport) {
        const auto request = static_cast<std::uint32_t>(7 + transport->rank());
        make_transport_vote_exchange(std::move(transport), 20s)->ask(set, request);
      });
  CHECK(std::count_if(ended.begin(), ended.end(), [](const Status& status) {
          return status.code() == StatusCode::internal && contains(status, "out of step");
        }) >= 1);
}

TEST_CASE("vote exchange: a vote that there is none of is refused") {
  const int ranks = GENERATE(2, 9);  // directly, and by dissemination
  CAPTURE(ranks);
  const ProcessSet set = everyone(ranks);
  const auto ended =
      run_transport_ranks({.kind = TransportKind::tcp, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
        if (transport->rank() != 1) return make_transport_vote_exchange(std::move(transport), 20s)->ask(set, 7);
        std::vector<std::byte> nonsense(ranks == 2 ? 8 + VoteExchange::kPayloadBytes : 1, std::byte{2});
        const Tag tag{.process_set = 5, .step = 0x80000000, .sequence = 7};
        transport->wait(transport->post_send(ranks == 2 ? 0 : 2, tag, nonsense), deadline_after(20s));
        const auto answer = transport->post_receive(0, tag, nonsense);
        transport->wait(answer, deadline_after(20s));
      });
  const Status& refusal = ended[ranks == 2 ? 0 : 2];
  CAPTURE(refusal.message());
  CHECK(refusal.code() == StatusCode::internal);
  CHECK(contains(refusal, "rank 1 neither asks nor declines"));
}

TEST_CASE("vote exchange: a few ranks give each other payloads with their votes") {
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp);
  const int ranks = GENERATE(1, 2, 5, 8, 9);
  CAPTURE(transport_name(kind), ranks);
  const ProcessSet set = everyone(ranks);
  std::atomic<int> wrong{0};
  run_all_well({.kind = kind, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
    const int self = transport->rank();
    const auto content = [](int rank, std::uint32_t request, std::size_t at) {
      return static_cast<std::byte>(static_cast<std::size_t>(rank) * 31 + request * 7 + at);
    };
    const auto votes = make_transport_vote_exchange(std::move(transport), 20s);
    for (std::uint32_t request = 0; request < 20; ++request) {
      std::byte* const own = votes->local_payload();
      wrong += (own != nullptr) != (ranks <= 8);
      for (std::size_t at = 0; own != nullptr && at < VoteExchange::kPayloadBytes; ++at)
        own[at] = content(self, request, at);
      const bool declines = request % 4 == 3 && self == 0;
      if (cast_vote(*votes, set, request, declines) || own == nullptr) continue;
      for (int rank = 0; rank < ranks; ++rank) {
        for (std::size_t at = 0; at < VoteExchange::kPayloadBytes; ++at) {
          wrong += votes->payload(rank)[at] != content(rank, request, at);
        }
      }
    }
  });
  CHECK(wrong == 0);
}
