#include "core/control/coordinator/coordinator_cache.h"

#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

AgreementPtr content(const std::string& name) { return std::make_shared<const Agreement>(2, allreduce(name)); }

std::string name_at(const CoordinatorCache& cache, std::uint32_t slot, std::uint64_t applied) {
  const AgreementPtr& found = cache.find(slot, applied);
  return found ? found->first().name : "nothing";
}

}  // namespace

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
