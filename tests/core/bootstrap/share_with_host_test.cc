#include "core/bootstrap/share_with_host.h"

#include <future>

#include "core/base/error.h"
#include "core/bootstrap/memory_store.h"
#include "tests/core/bootstrap/ranks_on.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

constexpr std::size_t kBytes = 8192;

struct Ranks {
  explicit Ranks(const std::string& layout) : hosts(layout) {}

  std::future<SharedMemory> start(int rank, const std::string& name, Duration timeout = 10s) {
    return std::async(std::launch::async, [=, this] {
      const Topology topology = make_topology(rank, ranks_on(hosts));
      return share_with_host(topology, store, key, name, {kBytes}, log, deadline_after(timeout));
    });
  }

  std::string hosts;
  MemoryStore store;
  JobKey key = JobKey::random();
  Log log{"test", LogLevel::warning};
};

}  // namespace

TEST_CASE("ranks of a host share memory, ranks of another have their own") {
  Ranks ranks("aabaab");
  std::vector<std::future<SharedMemory>> started;
  for (int rank = 5; rank >= 0; --rank) started.insert(started.begin(), ranks.start(rank, "data"));
  std::vector<SharedMemory> memory;
  for (auto& rank : started) memory.push_back(rank.get());

  memory[0].data()[0] = std::byte{1};
  memory[2].data()[0] = std::byte{2};
  const int expected[] = {1, 1, 2, 1, 1, 2};
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    CAPTURE(rank);
    CHECK(memory[rank].size() == kBytes);
    CHECK(std::to_integer<int>(memory[rank].data()[0]) == expected[rank]);
  }
}

TEST_CASE("two keys are two mappings") {
  Ranks ranks("aa");
  auto control_0 = ranks.start(0, "control"), control_1 = ranks.start(1, "control");
  auto data_0 = ranks.start(0, "data"), data_1 = ranks.start(1, "data");
  const SharedMemory control = control_0.get(), other_control = control_1.get();
  const SharedMemory data = data_0.get(), other_data = data_1.get();
  control.data()[7] = std::byte{1};
  CHECK(other_control.data()[7] == std::byte{1});
  CHECK(data.data()[7] == std::byte{0});
  CHECK(other_data.data()[7] == std::byte{0});
}

TEST_CASE("a rank alone on its host needs nobody") {
  Ranks ranks("ab");
  CHECK(ranks.start(1, "data", 1s).get().size() == kBytes);
}

TEST_CASE("a rank that does not come is named") {
  Ranks ranks("aaaa");
  auto lowest = ranks.start(0, "data", 500ms);
  auto second = ranks.start(1, "data", 500ms);
  CHECK(second.get().size() == kBytes);
  CHECK_THROWS_WITH(lowest.get(), Catch::Matchers::Contains("ranks 2, 3 of this host"));
}

TEST_CASE("a host whose lowest rank does not come") {
  Ranks ranks("aa");
  CHECK_THROWS_AS(ranks.start(1, "data", 50ms).get(), Timeout);
}
