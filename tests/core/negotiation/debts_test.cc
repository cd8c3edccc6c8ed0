#include "core/negotiation/debts.h"

#include "tests/support/catch.h"

using namespace hvd;

namespace {

Status reason(const std::string& text) { return Status(StatusCode::timeout, text); }

}  // namespace

TEST_CASE("Each rank pays its oldest debt first") {
  Debts debts;
  debts.add(reason("a"), RankSet(1, 3), 1);
  debts.add(reason("b"), RankSet(2, 4), 2);
  CHECK(debts.claims(RankSet(0, 4)).size() == 2);
  const auto paid = debts.pay(RankSet(0, 4));
  REQUIRE(paid.size() == 2);
  CHECK(paid[0].status == reason("a"));
  CHECK(paid[0].ranks == RankSet(1, 3));
  CHECK(paid[1].status == reason("b"));
  CHECK(paid[1].ranks == RankSet(3));
  CHECK(debts.pay(RankSet(1)).empty());
  CHECK(debts.pay(RankSet(2)).front().order == 2);
  CHECK(debts.empty());
}

TEST_CASE("What nobody owes is not kept, and what is forgiven neither") {
  Debts debts;
  debts.add(reason("a"), RankSet(), 1);
  CHECK(debts.empty());
  debts.add(reason("a"), RankSet(1), 1);
  debts.add(reason("b"), RankSet(1, 3), 2);
  debts.forgive(RankSet(1), 2);
  CHECK(debts.size() == 1);
  CHECK(debts.pay(RankSet(1)).front().status == reason("b"));
  debts.forgive(RankSet(2), 3);
  CHECK(debts.empty());
}

TEST_CASE("A rank that never comes back costs no memory, and is still counted") {
  constexpr std::uint64_t kRounds = 10'000;
  Debts debts;
  for (std::uint64_t round = 1; round <= kRounds; ++round) debts.add(reason("a"), RankSet(1, 3), round);
  CHECK(debts.size() <= 64);
  CHECK(debts.newest() == kRounds);
  for (std::uint64_t round = 1; round <= kRounds; ++round) CHECK(debts.pay(RankSet(1)).size() == 1);
  CHECK(debts.pay(RankSet(1)).empty());
  for (std::uint64_t round = 1; round <= kRounds; ++round) CHECK(debts.pay(RankSet(2)).size() == 1);
  CHECK(debts.empty());
}
