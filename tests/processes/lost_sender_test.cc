// A rank dies by SIGKILL in the middle of messages: the other one hears who, whatever it was doing.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/fork_ranks.h"

namespace hvd::testing {

namespace {

// Exit codes of the survivor.
enum : int { kHeardOfIt = 0, kHeardWrong = 11, kHeardNothing = 13 };

enum class Doing { receiving, sending, both };

// How many messages the survivor has had.
using Count = std::atomic<int>;

// Sends and receives 4 MB without end.
int exchange(Runtime& runtime, Doing doing, Count& count) {
  const int other = 1 - runtime.topology().rank;
  std::vector<std::byte> sent(std::size_t{4} << 20), received(sent.size());
  const bool sends = doing == Doing::both || (doing == Doing::sending) == (runtime.topology().rank == 0);
  const bool receives = doing == Doing::both || !sends;
  for (int i = 0; i < 1'000'000; ++i) {
    std::vector<CallerReference> handles;
    if (sends) handles.push_back(runtime.send({.peer = other, .memory = sent}));
    if (receives) handles.push_back(runtime.receive({.peer = other, .memory = received}));
    for (CallerReference& handle : handles) {
      handle->wait(Deadline::max());
      const Status& end = handle->completion.status();
      if (end.ok()) continue;
      if (end.code() == StatusCode::peer_lost && end.message().find("rank 1 on test-host") != std::string::npos) {
        return kHeardOfIt;
      }
      std::fprintf(stderr, "unexpected: %s\n", end.message().c_str());
      return kHeardWrong;
    }
    count.fetch_add(1);
  }
  return kHeardNothing;
}

// How far a job of three ranks is, of which rank 2 is killed.
struct Steps {
  std::atomic<bool> receives_from_killed, has_ended;
};

// Rank 0. Keeps its connection, on which it has offered a message, for as long as rank 1 needs it.
int offer_until_the_end(Runtime& runtime, const Steps& steps) {
  std::vector<std::byte> offered(std::size_t{1} << 20, std::byte{5}), small(8);
  CallerReference offer = runtime.send({.peer = 1, .tag = 1, .memory = offered});
  CallerReference sent = runtime.send({.peer = 1, .tag = 2, .memory = small});
  offer->wait(Deadline::max());
  std::ranges::fill(offered, std::byte{6});  // it is this rank's memory again
  const Deadline timeout = deadline_after(std::chrono::seconds(30));
  while (!steps.has_ended && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
  return offer->completion.status().code() == StatusCode::peer_lost ? kHeardOfIt : kHeardWrong;
}

// Rank 1. Receives what was offered to it when it knows that the job has ended.
int receive_after_the_end(Runtime& runtime, Steps& steps) {
  std::vector<std::byte> offered(std::size_t{1} << 20), small(8), never_sent(8);
  // Messages between two ranks arrive in order: once this one has arrived, so has the offer.
  runtime.receive({.peer = 0, .tag = 2, .memory = small})->wait(Deadline::max());
  CallerReference from_killed = runtime.receive({.peer = 2, .memory = never_sent});
  steps.receives_from_killed = true;
  from_killed->wait(Deadline::max());
  CallerReference late = runtime.receive({.peer = 0, .tag = 1, .memory = offered});
  const bool ends = late->wait(deadline_after(std::chrono::seconds(10)));
  steps.has_ended = true;
  if (!ends) _exit(kHeardNothing);  // a receive that does not end is released by no shutdown
  if (late->completion.status().code() == StatusCode::peer_lost) return kHeardOfIt;
  std::fprintf(stderr, "unexpected: status %d\n", static_cast<int>(late->completion.status().code()));
  return kHeardWrong;
}

}  // namespace

TEST_CASE("SIGKILL in the middle of messages is heard by name") {
  const auto doing = GENERATE(Doing::receiving, Doing::sending, Doing::both);
  const auto ranks_per_host = GENERATE(0, 1);
  INFO("doing " << static_cast<int>(doing) << ", ranks per host " << ranks_per_host);
  auto* count = new (mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Count{};
  ForkedRanks ranks(
      2, {},
      [&](int rank, const ForkedRanks::Start& start) {
        const auto runtime = start();
        Count others{};
        return exchange(*runtime, doing, rank == 0 ? *count : others);
      },
      ranks_per_host);
  const Deadline timeout = deadline_after(std::chrono::seconds(60));
  while (count->load() < 3 && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
  REQUIRE(count->load() >= 3);
  ranks.kill(1, SIGKILL);
  CHECK(ranks.wait(0) == kHeardOfIt);
  CHECK(ranks.wait(1) == 128 + SIGKILL);
  munmap(count, sizeof(Count));
}

TEST_CASE("who leaves ends receives, but takes nothing back that it has sent") {
  const auto ranks_per_host = GENERATE(0, 1);
  const auto size = GENERATE(std::size_t{8}, std::size_t{60'000});
  ForkedRanks ranks(
      2, {},
      [size](int rank, const ForkedRanks::Start& start) {
        const auto runtime = start();
        std::vector<std::byte> value(size, std::byte{5}), other(8), third(size);
        if (rank == 0) {
          CallerReference sent = runtime->send({.peer = 1, .tag = 1, .memory = value});
          sent->wait(Deadline::max());
          return sent->completion.status().ok() ? int{kHeardOfIt} : int{kHeardWrong};
        }
        CallerReference never_sent = runtime->receive({.peer = 0, .tag = 2, .memory = other});
        never_sent->wait(Deadline::max());
        CallerReference arrived = runtime->receive({.peer = 0, .tag = 1, .memory = third});
        arrived->wait(Deadline::max());
        if (never_sent->completion.status().code() != StatusCode::shut_down || !arrived->completion.status().ok()) {
          std::fprintf(stderr, "unexpected: %s; %s\n", never_sent->completion.status().message().c_str(),
                       arrived->completion.status().message().c_str());
          return int{kHeardWrong};
        }
        return third == value ? int{kHeardOfIt} : int{kHeardNothing};
      },
      ranks_per_host);
  CHECK(ranks.wait(0) == kHeardOfIt);
  CHECK(ranks.wait(1) == kHeardOfIt);
}

TEST_CASE("a message that was only offered before the job's end is received by nobody after it") {
  const auto ranks_per_host = GENERATE(0, 1);
  INFO("ranks per host " << ranks_per_host);
  auto* steps = new (mmap(nullptr, sizeof(Steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Steps{};
  ForkedRanks ranks(
      3, {},
      [steps](int rank, const ForkedRanks::Start& start) {
        const auto runtime = start();
        if (rank == 0) return offer_until_the_end(*runtime, *steps);
        if (rank == 1) return receive_after_the_end(*runtime, *steps);
        for (;;) pause();
      },
      ranks_per_host);
  const Deadline timeout = deadline_after(std::chrono::seconds(60));
  while (!steps->receives_from_killed && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
  REQUIRE(steps->receives_from_killed);
  ranks.kill(2, SIGKILL);
  CHECK(ranks.wait(1) == kHeardOfIt);
  CHECK(ranks.wait(0) == kHeardOfIt);
  CHECK(ranks.wait(2) == 128 + SIGKILL);
  munmap(steps, sizeof(Steps));
}

}  // namespace hvd::testing
