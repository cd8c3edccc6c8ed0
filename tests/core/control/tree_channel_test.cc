// The end of a locked schedule is heard on every rank, however it is reached. What else a channel does, the tests of
// the whole runtime show.
#include "core/control/tree/tree_channel.h"

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/store.h"
#include "tests/support/catch.h"

using Catch::Matchers::Contains;
using namespace hvd;

namespace {

std::vector<RankIdentity> identities(const std::vector<int>& ranks_by_host) {
  std::vector<RankIdentity> all;
  for (std::size_t host = 0; host < ranks_by_host.size(); ++host) {
    const std::string name = "host-" + std::to_string(host);
    for (int i = 0; i < ranks_by_host[host]; ++i) all.push_back({.host_key = name, .hostname = name, .pid = 100 + i});
  }
  return all;
}

// What the channels of all ranks of a job have in common.
struct JobOfThreads {
  explicit JobOfThreads(const std::vector<int>& ranks_by_host) : ranks(identities(ranks_by_host)) {}

  std::unique_ptr<ControlChannel> connect(const Topology& topology, bool shared_memory, AbortFlag& abort,
                                          Metrics& metrics, Duration timeout = 20s) {
    return make_tree_channel({.topology = topology,
                              .store = store,
                              .key = key,
                              .local_host = "127.0.0.1",
                              .shared_memory = shared_memory,
                              .abort = abort,
                              .log = log,
                              .metrics = metrics,
                              .deadline = deadline_after(timeout)});
  }

  const std::vector<RankIdentity> ranks;
  Store store;
  const JobKey key = JobKey::random();
  const Log log{"test", LogLevel::off};
};

// Runs the body on each rank, as a thread; returns what has failed.
std::string on_channels(const std::vector<int>& ranks_by_host, bool shared_memory,
                        const std::function<void(int rank, ControlChannel& channel)>& body) {
  JobOfThreads job(ranks_by_host);
  std::vector<std::string> failures(job.ranks.size());
  std::barrier<> end(static_cast<std::ptrdiff_t>(job.ranks.size()));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      AbortFlag abort;
      Metrics metrics;
      const Topology topology = make_topology(static_cast<int>(rank), job.ranks);
      const std::unique_ptr<ControlChannel> channel = job.connect(topology, shared_memory, abort, metrics);
      try {
        body(static_cast<int>(rank), *channel);
      } catch (const std::exception& error) {
        failures[rank] = "rank " + std::to_string(rank) + ": " + error.what() + "\n";
      }
      end.arrive_and_wait();
      channel->close(deadline_after(1s));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string text;
  for (const std::string& failure : failures) text += failure;
  return text;
}

// Sleeps as an engine does; nothing but the news wakes it in time.
void await_break(ControlChannel& channel, std::uint64_t lock_number) {
  const Deadline delay = deadline_after(20s);
  for (;;) {
    channel.receive();
    const std::uint64_t broken = channel.break_requested();
    if (broken == lock_number) return;
    if (broken > lock_number) throw Internal("hears of " + std::to_string(broken) + " instead");
    if (Clock::now() >= delay) throw Timeout("heard of no break " + std::to_string(lock_number));
    channel.wait(channel.heard(), delay, nullptr);
  }
}

struct Hosts {
  std::vector<int> ranks;
  bool shared_memory = true;
};

Hosts any_hosts() {
  const auto hosts = GENERATE(values<Hosts>({{{4}}, {{4}, false}, {{1, 1, 1, 1}}, {{2, 2}}, {{1, 3}}, {{3, 1}}}));
  UNSCOPED_INFO(hosts.ranks.size() << " hosts, the first with " << hosts.ranks.front());
  return hosts;
}

}  // namespace

TEST_CASE("star channel: whoever asks for a break, every rank hears of it, and nobody of an earlier one") {
  const Hosts hosts = any_hosts();
  std::barrier<> heard(4);
  const std::string failures = on_channels(hosts.ranks, hosts.shared_memory, [&](int rank, ControlChannel& channel) {
    for (int turn = 0; turn < 12; ++turn) {
      const auto lock_number = static_cast<std::uint64_t>(10 * (turn + 2));
      if (rank == turn % 4) {
        channel.request_break(lock_number - 11);
        channel.request_break(lock_number);
      }
      await_break(channel, lock_number);
      heard.arrive_and_wait();
    }
  });
  CHECK(failures == "");
}

TEST_CASE("star channel: all may ask for a break at once") {
  const Hosts hosts = any_hosts();
  const std::string failures = on_channels(hosts.ranks, hosts.shared_memory, [&](int, ControlChannel& channel) {
    channel.request_break(7);
    await_break(channel, 7);
  });
  CHECK(failures == "");
}

TEST_CASE("star channel: whoever does not connect is named on all ranks, and not the one that gave up") {
  JobOfThreads job({1, 1, 1});
  AbortFlag abort_of_0, abort_of_1;
  Metrics metrics_of_0, metrics_of_1;
  const Topology of_0 = make_topology(0, job.ranks), of_1 = make_topology(1, job.ranks);
  Status failure;
  std::thread rank_0([&] {
    try {
      job.connect(of_0, false, abort_of_0, metrics_of_0, 2s);
    } catch (const Error& error) {
      failure = error.status();
    }
  });
  const auto channel = job.connect(of_1, false, abort_of_1, metrics_of_1);
  rank_0.join();
  CHECK(failure.code() == StatusCode::timeout);
  CHECK(failure.culprit() == 2);

  const Deadline soon = deadline_after(20s);
  while (!abort_of_1.raised() && Clock::now() < soon) std::this_thread::sleep_for(1ms);
  CHECK(abort_of_1.reason().code() == StatusCode::aborted);
  CHECK(abort_of_1.reason().culprit() == 2);
  CHECK_THAT(abort_of_1.reason().message(), Contains("rank 0") && Contains("the control connection of rank 2"));
  channel->close(deadline_after(1s));
}

TEST_CASE("star channel: a rank that cannot connect names the one that it waits for") {
  JobOfThreads job({1, 1});
  AbortFlag abort;
  Metrics metrics;
  const Topology topology = make_topology(1, job.ranks);
  try {
    job.connect(topology, false, abort, metrics, 100ms);
    FAIL("connected to nobody");
  } catch (const Error& error) {
    CHECK(error.code() == StatusCode::timeout);
    CHECK(error.status().culprit() == 0);
  }
}
