#include "core/control/coordinator/pending_failures.h"

#include "tests/support/catch.h"

using namespace hvd;

namespace {

Status reason(const std::string& text) { return Status(StatusCode::timeout, text); }

}  // namespace

TEST_CASE("Each rank pays its oldest debt first") {
  PendingFailures pending_failures;
  pending_failures.add(reason("a"), RankSet(1, 3), 1);
  pending_failures.add(reason("b"), RankSet(2, 4), 2);
  CHECK(pending_failures.claims(RankSet(0, 4)).size() == 2);
  const auto paid = pending_failures.pay(RankSet(0, 4));
  REQUIRE(paid.size() == 2);
  CHECK(paid[0].status == reason("a"));
  CHECK(paid[0].ranks == RankSet(1, 3));
  CHECK(paid[1].status == reason("b"));
  CHECK(paid[1].ranks == RankSet(3));
  CHECK(pending_failures.pay(RankSet(1)).empty());
  CHECK(pending_failures.pay(RankSet(2)).front().order == 2);
  CHECK(pending_failures.empty());
}

TEST_CASE("What nobody owes is not kept, and what is forgiven neither") {
  PendingFailures pending_failures;
  pending_failures.add(reason("a"), RankSet(), 1);
  CHECK(pending_failures.empty());
  pending_failures.add(reason("a"), RankSet(1), 1);
  pending_failures.add(reason("b"), RankSet(1, 3), 2);
  pending_failures.forgive(RankSet(1), 2);
  CHECK(pending_failures.size() == 1);
  CHECK(pending_failures.pay(RankSet(1)).front().status == reason("b"));
  pending_failures.forgive(RankSet(2), 3);
  CHECK(pending_failures.empty());
}

TEST_CASE("A rank that never comes back costs no memory, and is still counted") {
  constexpr std::uint64_t kRounds = 10'000;
  PendingFailures pending_failures;
  for (std::uint64_t round = 1; round <= kRounds; ++round) pending_failures.add(reason("a"), RankSet(1, 3), round);
  CHECK(pending_failures.size() <= 64);
  CHECK(pending_failures.newest() == kRounds);
  for (std::uint64_t round = 1; round <= kRounds; ++round) CHECK(pending_failures.pay(RankSet(1)).size() == 1);
  CHECK(pending_failures.pay(RankSet(1)).empty());
  for (std::uint64_t round = 1; round <= kRounds; ++round) CHECK(pending_failures.pay(RankSet(2)).size() == 1);
  CHECK(pending_failures.empty());
}
