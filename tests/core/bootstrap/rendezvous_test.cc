#include "core/bootstrap/rendezvous.h"

#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/core/bootstrap/ranks_on.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

// What MPI_Bcast would be.
class Word {
 public:
  void broadcast(int rank, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    if (rank == 0) {
      said_.assign(bytes.begin(), bytes.end());
      changed_.notify_all();
      return;
    }
    if (!changed_.wait_for(lock, 30s, [&] { return !said_.empty(); })) throw Timeout("rank 0 says nothing");
    std::copy(said_.begin(), said_.end(), bytes.begin());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> said_;
};

}  // namespace

TEST_CASE("rendezvous: all ranks find the store that rank 0 hosts") {
  const bool one_host = GENERATE(true, false);
  constexpr int kRanks = 4;
  const Log log("test", LogLevel::off);
  Word word;
  std::vector<std::string> heard(kRanks);
  {
    std::vector<JobStore> places(kRanks);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        places[at] = rendezvous_by_broadcast(
            {.rank = rank,
             .size = kRanks,
             .local_size = one_host ? kRanks : 0,
             .broadcast = [&, rank](std::span<std::byte> bytes) { word.broadcast(rank, bytes); }},
            log, deadline_after(30s));
        places[at].store.set("from/" + std::to_string(rank), std::to_string(rank));
        heard[at] = places[at].store.get("from/" + std::to_string((rank + 1) % kRanks), deadline_after(30s));
      });
    }
    for (std::thread& rank : ranks) rank.join();
    CHECK(places[0].server != nullptr);
    CHECK(places[1].server == nullptr);
    CHECK(places[3].key.to_hex() == places[0].key.to_hex());
  }
  CHECK(heard == std::vector<std::string>{"1", "2", "3", "0"});
}

#ifndef HVD_SANITIZED  // the sanitizers themselves need descriptors
TEST_CASE("rendezvous: if rank 0 cannot host the store, all hear why") {
  const Log log("test", LogLevel::off);
  Word word;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  const auto join_as = [&](int rank) {
    return rendezvous_by_broadcast(
        {.rank = rank,
         .size = 2,
         .local_size = 2,
         .broadcast = [&word, rank](std::span<std::byte> bytes) { word.broadcast(rank, bytes); }},
        log, deadline_after(30s));
  };
  setrlimit(RLIMIT_NOFILE, &none);
  std::string first, second;
  try {
    join_as(0);
  } catch (const Error& error) {
    first = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &limit);
  try {
    join_as(1);
  } catch (const Error& error) {
    second = error.what();
  }
  CHECK_THAT(first, Catch::Matchers::StartsWith("rank 0 cannot host the job's store: "));
  CHECK(second == first);
}
#endif

TEST_CASE("rendezvous: info that is not rank 0's is refused") {
  const Log log("test", LogLevel::off);
  const auto join_with = [&](unsigned char filled) {
    return rendezvous_by_broadcast(
        {.rank = 1,
         .size = 2,
         .broadcast = [=](std::span<std::byte> bytes) { std::memset(bytes.data(), filled, bytes.size()); }},
        log, deadline_after(2s));
  };
  CHECK_THROWS_AS(join_with(0), Error);
  CHECK_THROWS_AS(join_with(0xff), Error);
}

TEST_CASE("rendezvous: at a given address, again and again") {
  const Log log("test", LogLevel::off);
  const JobKey key = JobKey::random();
  std::uint16_t port = 0;
  {
    const StoreServerThread any(key, "127.0.0.1", log);
    port = any.address().port;
  }
  for (int times = 0; times < 3; ++times) {
    const JobStore first = rendezvous_at({.host = "127.0.0.1", .port = port}, key, 0, log, deadline_after(30s));
    const JobStore second = rendezvous_at({.host = "127.0.0.1", .port = port}, key, 1, log, deadline_after(30s));
    second.store.set("key", "value");
    CHECK(first.store.get("key", deadline_after(30s)) == "value");
  }
}

TEST_CASE("a process's own identity") {
  const RankIdentity found = identify_this_process("", "");
  CHECK(found.pid == getpid());
  CHECK_FALSE(found.hostname.empty());
  CHECK_FALSE(found.cpus.empty());
  CHECK(found.host_key == identify_this_process("", "").host_key);
  CHECK(found.host_key.find("uid:" + std::to_string(geteuid())) != std::string::npos);
}

TEST_CASE("what is given replaces what is found") {
  const RankIdentity given = identify_this_process("rack 1", "node-a");
  CHECK(given.host_key == "rack 1");
  CHECK(given.hostname == "node-a");
  // Another name in messages does not separate ranks that can share memory.
  CHECK(identify_this_process("", "node-a").host_key == identify_this_process("", "").host_key);
}

namespace {

RankIdentity identity_of(int rank) {
  return {.host_key = "key-" + std::to_string(rank / 2),
          .hostname = "host-" + std::to_string(rank / 2),
          .pid = rank,
          .settings = {"A=" + std::to_string(rank), "B="},
          .cpus = std::vector<std::uint64_t>(static_cast<std::size_t>(rank), 7)};
}

using Identities = std::vector<RankIdentity>;

std::future<Identities> start(Store& store, int rank, int size, Duration timeout) {
  return std::async(std::launch::async, [=, &store] {
    return exchange_identities(store, rank, size, identity_of(rank), deadline_after(timeout));
  });
}

}  // namespace

TEST_CASE("all ranks learn of all") {
  const int size = GENERATE(1, 2, 5);
  Store store;
  std::vector<std::future<Identities>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(start(store, rank, size, 10s));
  for (auto& rank : ranks) {
    const Identities identities = rank.get();
    REQUIRE(identities.size() == static_cast<std::size_t>(size));
    for (int other = 0; other < size; ++other) {
      const RankIdentity& seen = identities[static_cast<std::size_t>(other)];
      CHECK(seen.host_key == identity_of(other).host_key);
      CHECK(seen.hostname == identity_of(other).hostname);
      CHECK(seen.pid == other);
      CHECK(seen.settings == identity_of(other).settings);
      CHECK(seen.cpus == identity_of(other).cpus);
    }
  }
}

TEST_CASE("who comes as a rank that has come is told whose child it is") {
  Store store;
  const RankIdentity parent{.host_key = "here", .hostname = "h", .pid = getppid()};
  const RankIdentity impostor{.host_key = "there", .hostname = "h2", .pid = getppid()};
  const RankIdentity own{.host_key = "here", .hostname = "h", .pid = getpid()};
  const std::string pid = std::to_string(getpid()), first = std::to_string(getppid());
  const bool is_child = GENERATE(true, false);
  CHECK(exchange_identities(store, 0, 1, is_child ? parent : impostor, deadline_after(10s)).size() == 1);
  CHECK_THROWS_WITH(
      exchange_identities(store, 0, 1, own, deadline_after(10s)),
      Catch::Matchers::StartsWith("this process (pid " + pid + ") is " +
                                  (is_child ? "a child of rank 0 (pid " + first + " on h), and cannot join"
                                            : "not rank 0 (pid " + first + " on h2), which has joined the job, and")));
}

TEST_CASE("the ranks that did not come are named, by all who did") {
  Store store;
  std::vector<std::future<Identities>> present;
  for (const int rank : {0, 1, 3}) present.push_back(start(store, rank, 6, 500ms));
  for (auto& rank : present)
    CHECK_THROWS_WITH(rank.get(), Catch::Matchers::Contains("ranks 2, 4, 5 did not start within "));
}

TEST_CASE("rank 0 may be the missing one") {
  Store store;
  auto one = start(store, 1, 3, 500ms);
  auto two = start(store, 2, 3, 500ms);
  CHECK_THROWS_WITH(one.get(), Catch::Matchers::StartsWith("rank 0 did not start within "));
  CHECK_THROWS_AS(two.get(), Timeout);
}

TEST_CASE("rank 0 may have come, and not publish who it is that has not") {
  Store store;
  const bool all_have_come = GENERATE(false, true);
  store.add("arrived/0", 1);
  if (all_have_come) store.add("arrived/2", 1);
  auto one = start(store, 1, 3, 50ms);
  CHECK_THROWS_WITH(one.get(),
                    Catch::Matchers::StartsWith(all_have_come ? "rank 0 has not published the ranks' identities within "
                                                              : "rank 2 did not start within "));
}

TEST_CASE("ranks that were told different sizes notice") {
  Store store;
  auto zero = start(store, 0, 2, 10s);
  auto one = start(store, 1, 3, 10s);
  CHECK_NOTHROW(zero.get());
  CHECK_THROWS_AS(one.get(), Mismatch);
}

TEST_CASE("nonsense in the store is an error") {
  Store store;
  store.set("identities", "nonsense");
  CHECK_THROWS_AS(exchange_identities(store, 1, 2, identity_of(1), deadline_after(1s)), Error);
}

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
  Store store;
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

TEST_CASE("a rank of a process set that does not come is named by its number in the job") {
  const Ranks ranks("aaaa");
  const Topology set = make_subset(make_topology(1, ranks_on("aaaa")), {1, 3});
  CHECK_THROWS_WITH(share_with_host(set, ranks.store, ranks.key, "data", {kBytes}, ranks.log, deadline_after(50ms)),
                    Catch::Matchers::Contains("rank 3 of this host"));
}

TEST_CASE("a host whose lowest rank does not come") {
  Ranks ranks("aa");
  CHECK_THROWS_AS(ranks.start(1, "data", 50ms).get(), Timeout);
}

}  // namespace hvd::testing
