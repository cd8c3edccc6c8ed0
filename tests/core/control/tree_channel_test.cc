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

// Runs the body on each rank, as a thread; returns what has failed.
std::string on_channels(const std::vector<int>& ranks_by_host, bool shared_memory,
                        const std::function<void(int rank, ControlChannel& channel)>& body) {
  Store store;
  const JobKey key = JobKey::random();
  const Log log("test", LogLevel::off);
  const std::vector<RankIdentity> all = identities(ranks_by_host);
  std::vector<std::string> failures(all.size());
  std::barrier<> end(static_cast<std::ptrdiff_t>(all.size()));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    threads.emplace_back([&, rank] {
      AbortFlag abort;
      Metrics metrics;
      const Topology topology = make_topology(static_cast<int>(rank), all);
      const std::unique_ptr<ControlChannel> channel = make_tree_channel({.topology = topology,
                                                                         .store = store,
                                                                         .key = key,
                                                                         .local_host = "127.0.0.1",
                                                                         .shared_memory = shared_memory,
                                                                         .abort = abort,
                                                                         .log = log,
                                                                         .metrics = metrics,
                                                                         .deadline = deadline_after(20s)});
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
void await_break(ControlChannel& channel, std::uint64_t epoch) {
  const Deadline delay = deadline_after(20s);
  for (;;) {
    channel.receive();
    const std::uint64_t broken = channel.break_requested();
    if (broken == epoch) return;
    if (broken > epoch) throw Internal("hears of " + std::to_string(broken) + " instead");
    if (Clock::now() >= delay) throw Timeout("heard of no break " + std::to_string(epoch));
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
      const auto epoch = static_cast<std::uint64_t>(10 * (turn + 2));
      if (rank == turn % 4) {
        channel.request_break(epoch - 11);
        channel.request_break(epoch);
      }
      await_break(channel, epoch);
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
