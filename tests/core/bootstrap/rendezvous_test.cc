// Ranks as threads that meet by one word of rank 0's.
#include "core/bootstrap/rendezvous.h"

#include <sys/resource.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/error.h"
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
        places[at] = meet({.rank = rank,
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
    return meet({.rank = rank,
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

TEST_CASE("rendezvous: a word that is not rank 0's is refused") {
  const Log log("test", LogLevel::off);
  const auto join_with = [&](unsigned char filled) {
    return meet({.rank = 1,
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

}  // namespace hvd::testing
