#include "simulation/network.h"

#include <algorithm>

#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::simulation;

namespace {

// Two ranks on each of three hosts.
const std::vector<int> kHosts = {0, 0, 1, 1, 2, 2};

struct Lab {
  explicit Lab(const NetworkParameters& given = {}, std::uint64_t seed = 1)
      : network(queue, given, kHosts, seed), parameters(given) {}

  void send(int from, int to, std::size_t bytes) {
    network.send(from, to, bytes, queue.now(), [this] { arrivals.push_back(queue.now() - TimePoint{}); });
  }
  void run() {
    while (queue.step()) {
    }
  }

  EventQueue queue;
  Network network;
  NetworkParameters parameters;
  std::vector<Duration> arrivals;
};

}  // namespace

TEST_CASE("A message takes the latency and a gap for each byte, headers included") {
  Lab lab;
  lab.send(0, 2, 10'000);
  lab.run();
  const LinkParameters& link = lab.parameters.between_hosts;
  CHECK(lab.arrivals == std::vector{link.latency + gap(link, with_headers(10'000))});
  CHECK(with_headers(10'000) > 10'000);
  CHECK(gap({.gbit = 8}, 1000) == 1us);
}

TEST_CASE("A host's connection carries one byte at a time, in and out") {
  Lab lab;
  const Duration time = gap(lab.parameters.between_hosts, with_headers(50'000));
  const Duration first = lab.parameters.between_hosts.latency + time;
  SECTION("out, of both ranks") {
    lab.send(0, 2, 50'000);
    lab.send(1, 4, 50'000);
  }
  SECTION("in, to both ranks") {
    lab.send(2, 0, 50'000);
    lab.send(4, 1, 50'000);
  }
  lab.run();
  CHECK(lab.arrivals == std::vector{first, first + time});
}

TEST_CASE("Messages inside a host are counted apart, and do not use the network") {
  Lab lab;
  lab.send(0, 1, 100);
  lab.send(0, 2, 100);
  lab.send(0, 2, 50);
  lab.run();
  CHECK(lab.network.traffic()[0].messages == 2);
  CHECK(lab.network.traffic()[0].bytes == 150);
  CHECK(lab.network.traffic()[0].local_messages == 1);
  lab.network.reset_traffic();
  CHECK(lab.network.traffic()[0].messages == 0);
}

TEST_CASE("Whatever is late or lost, order between two ranks is kept and everything arrives") {
  Lab lab({.jitter = 100us, .drop = 0.3}, 7);
  std::vector<int> order;
  for (int i = 0; i < 200; ++i) {
    lab.network.send(0, 2, 10, lab.queue.now(), [&order, i] { order.push_back(i); });
  }
  lab.run();
  REQUIRE(order.size() == 200);
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(lab.queue.now() - TimePoint{} > lab.parameters.retransmission);
}

TEST_CASE("The same seed gives the same times, another one others") {
  const auto times = [](std::uint64_t seed) {
    Lab lab({.jitter = 10us, .drop = 0.1}, seed);
    for (int i = 0; i < 50; ++i) lab.send(i % 2, 2 + i % 4, 100);
    lab.run();
    return lab.arrivals;
  };
  CHECK(times(3) == times(3));
  CHECK(times(3) != times(4));
}

TEST_CASE("A lost rank sends nothing and receives nothing") {
  Lab lab;
  lab.send(0, 2, 100);
  lab.network.lose(2);
  lab.send(2, 0, 100);
  lab.run();
  CHECK(lab.arrivals.empty());
}
