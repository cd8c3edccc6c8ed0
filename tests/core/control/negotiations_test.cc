// The parts of the negotiations' table: pending failures and the coordinator's cache. The table itself is tested with
// the coordinator.
#include "core/control/coordinator/negotiations.h"

#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

Status reason(const std::string& text) { return Status(StatusCode::timeout, text); }

AgreementPtr content(const std::string& name) { return std::make_shared<const Agreement>(2, allreduce(name)); }

std::string name_at(const CoordinatorCache& cache, std::uint32_t slot, std::uint64_t applied) {
  const AgreementPtr& found = cache.find(slot, applied);
  return found ? found->first().name : "nothing";
}

}  // namespace

TEST_CASE("Each rank gets its oldest failure first") {
  PendingFailures pending_failures;
  pending_failures.add(reason("a"), RankSet(1, 3), 1);
  pending_failures.add(reason("b"), RankSet(2, 4), 2);
  CHECK(pending_failures.oldest(RankSet(0, 4)).size() == 2);
  const auto taken = pending_failures.take_oldest(RankSet(0, 4));
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].status == reason("a"));
  CHECK(taken[0].ranks == RankSet(1, 3));
  CHECK(taken[1].status == reason("b"));
  CHECK(taken[1].ranks == RankSet(3));
  CHECK(pending_failures.take_oldest(RankSet(1)).empty());
  CHECK(pending_failures.take_oldest(RankSet(2)).front().order == 2);
  CHECK(pending_failures.empty());
}

TEST_CASE("A failure that no rank is late for is not kept") {
  PendingFailures pending_failures;
  pending_failures.add(reason("a"), RankSet(), 1);
  CHECK(pending_failures.empty());
  pending_failures.add(reason("a"), RankSet(1), 1);
  pending_failures.add(reason("b"), RankSet(1, 3), 2);
  pending_failures.drop_before(RankSet(1), 2);
  CHECK(pending_failures.size() == 1);
  CHECK(pending_failures.take_oldest(RankSet(1)).front().status == reason("b"));
  pending_failures.drop_before(RankSet(2), 3);
  CHECK(pending_failures.empty());
}

TEST_CASE("A rank that never comes back costs no memory, and is still counted") {
  constexpr std::uint64_t kRounds = 10'000;
  PendingFailures pending_failures;
  for (std::uint64_t round = 1; round <= kRounds; ++round) pending_failures.add(reason("a"), RankSet(1, 3), round);
  CHECK(pending_failures.size() <= 64);
  CHECK(pending_failures.newest() == kRounds);
  for (const int rank : {1, 2}) {
    std::uint64_t taken = 0;
    while (taken <= kRounds && pending_failures.take_oldest(RankSet(rank)).size() == 1) ++taken;
    CHECK(taken == kRounds);
  }
  CHECK(pending_failures.empty());
}

TEST_CASE("A slot means what it held when the hit was sent") {
  CoordinatorCache cache(1);
  const std::uint32_t slot = cache.take();
  CHECK(name_at(cache, slot, 9) == "nothing");
  cache.store(slot, content("a"), 3, 0);
  cache.store(slot, content("b"), 5, 2);
  cache.store(slot, content("c"), 6, 3);
  const std::pair<std::uint64_t, const char*> rows[] = {{2, "nothing"}, {3, "a"}, {4, "a"},
                                                        {5, "b"},       {6, "c"}, {7, "c"}};
  for (const auto& [applied, name] : rows) CHECK(name_at(cache, slot, applied) == name);
  CHECK(name_at(cache, slot + 1, 9) == "nothing");
}

TEST_CASE("Contents that no hit can mean any more are forgotten") {
  CoordinatorCache cache(1);
  const std::uint32_t slot = cache.take();
  std::vector<std::weak_ptr<const Agreement>> contents;
  for (std::uint64_t number = 1; number <= 4; ++number) {
    const AgreementPtr fresh = content("x");
    contents.push_back(fresh);
    cache.store(slot, fresh, number, number == 4 ? 2 : 0);
  }
  CHECK(contents[0].expired());  // replaced by message 2, which all have applied
  CHECK_FALSE(contents[1].expired());
  CHECK_FALSE(contents[2].expired());
}

TEST_CASE("The least recently used slot that is not held is taken") {
  CoordinatorCache cache(3);
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    CHECK(cache.take() == slot);
    cache.store(slot, content("x"), 1, 0);
  }
  CHECK(cache.take() == kNoSlot);
  for (const std::uint32_t slot : {1u, 0u, 2u}) cache.release(slot);
  cache.hold(1);
  cache.release(1);  // used again
  CHECK(cache.take() == 0u);
  cache.hold(2);
  CHECK(cache.take() == 1u);
  CHECK(cache.take() == kNoSlot);
}

TEST_CASE("Without capacity there is no slot") { CHECK(CoordinatorCache(0).take() == kNoSlot); }
