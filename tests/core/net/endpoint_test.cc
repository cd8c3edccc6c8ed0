#include "core/net/endpoint.h"

#include <sched.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("an address survives being text") {
  const std::string text = GENERATE(std::string("tcp:10.0.0.7:4711"), std::string("tcp:host-b.example:1"),
                                    std::string("tcp:[fe80::1]:65535"), std::string("unix:hvd-0123"),
                                    std::string("unix:a:b"), "unix:" + std::string(107, 'n'));
  CAPTURE(text);
  CHECK(Address::parse(text).to_string() == text);
}

TEST_CASE("an address's parts") {
  const Address tcp = Address::parse("tcp:[::1]:80");
  CHECK(tcp.kind == Address::Kind::tcp);
  CHECK(tcp.host == "::1");
  CHECK(tcp.port == 80);
  const Address local = Address::parse("unix:name");
  CHECK(local.kind == Address::Kind::unix_abstract);
  CHECK(local.host == "name");
}

TEST_CASE("malformed addresses are refused") {
  const std::string text =
      GENERATE(std::string(""), std::string("10.0.0.7:4711"), std::string("tcp:"), std::string("tcp::1"),
               std::string("tcp:host"), std::string("tcp:host:"), std::string("tcp:host:0"),
               std::string("tcp:host:65536"), std::string("tcp:host:-1"), std::string("tcp:host:12x"),
               std::string("tcp:::1:80"), std::string("unix:"), "unix:" + std::string(108, 'n'),
               "tcp:" + std::string(256, 'h') + ":1", std::string("udp:host:1"), std::string("tcp:a\0b:1", 9));
  CAPTURE(text);
  CHECK_THROWS_AS(Address::parse(text), InvalidArgument);
}

TEST_CASE("of many addresses the first are taken, but an interface that is named is found behind them") {
  std::vector<LocalAddress> own;
  for (int i = 0; i < 20; ++i) own.push_back({.interface = "br-" + std::to_string(i), .address = std::to_string(i)});
  CHECK(addresses_of(own, {}, "").size() == kMaxAddresses);
  CHECK(addresses_of(own, {"br-19"}, "HVD_NETWORK_INTERFACES") == std::vector<std::string>{"19"});
}

TEST_CASE("an interface is named by itself or by its network") {
  const std::vector<LocalAddress> own = {{.interface = "eth0", .address = "10.1.2.3"},
                                         {.interface = "eth1", .address = "10.2.2.3"},
                                         {.interface = "ib0", .address = "192.168.7.9"}};
  const auto named = [&own](const std::vector<std::string>& interfaces) { return addresses_of(own, interfaces, "X"); };
  using Addresses = std::vector<std::string>;
  CHECK(named({"10.2.0.0/16"}) == Addresses{"10.2.2.3"});
  CHECK(named({"10.2.99.1/16"}) == Addresses{"10.2.2.3"});
  CHECK(named({"192.168.7.9/32", "eth0"}) == Addresses{"192.168.7.9", "10.1.2.3"});
  CHECK(named({"10.0.0.0/8", "eth1"}) == Addresses{"10.1.2.3", "10.2.2.3"});
  CHECK(named({"0.0.0.0/0"}).size() == 3);
  for (const char* none : {"10.3.0.0/16", "10.2.0.0/33", "10.2.0/16", "10.2.0.0/", "/16", "10.2.0.0"}) {
    CAPTURE(none);
    CHECK_THROWS_AS(named({none}), InvalidArgument);
  }
}

// In a network namespace of a thread, and of the processes that it starts.
TEST_CASE("a host has as many addresses as it has") {
  bool permitted = false;
  std::vector<LocalAddress> own;
  std::thread elsewhere([&] {
    permitted = unshare(CLONE_NEWNET) == 0 && std::system(
                                                  "ip link add br0 type veth peer name br1 && ip link set br0 up && "
                                                  "for i in $(seq 20); do ip addr add 10.9.$i.1/24 dev br0; done") == 0;
    own = local_addresses();
  });
  elsewhere.join();
  if (!permitted) {
    WARN("namespaces are not permitted here, or there is no ip");
    return;
  }
  CHECK(own.size() == 20);
}

TEST_CASE("keep-alive probes are spread over the lease") {
  struct Case {
    Duration lease;
    int idle_s, interval_s, probes;
  };
  const auto c = GENERATE(values<Case>({
      {100ms, 1, 1, 1},
      {1s, 1, 1, 1},
      {1500ms, 1, 1, 1},
      {2s, 1, 1, 1},
      {3s, 1, 1, 2},
      {5s, 1, 1, 4},
      {7s, 1, 1, 6},
      {12s, 2, 2, 5},
      {60s, 12, 12, 4},
      {3600s, 720, 720, 4},
  }));
  INFO(c.lease.count());
  const KeepAlive result = keep_alive(c.lease);
  CHECK(result.idle_s == c.idle_s);
  CHECK(result.interval_s == c.interval_s);
  CHECK(result.probes == c.probes);
}

TEST_CASE("keep-alive takes as long as the lease, in whole seconds and two at least") {
  for (int seconds = 1; seconds <= 3600; ++seconds) {
    const KeepAlive result = keep_alive(std::chrono::seconds(seconds));
    INFO(seconds);
    REQUIRE(result.limit_s() == std::max(2, seconds));
    REQUIRE(result.probes <= 127);  // the kernel's limits
    REQUIRE(result.idle_s <= 32767);
    REQUIRE((result.probes >= 4 || seconds < 5));
  }
}

namespace {

constexpr Delivery kDelivered{};
// The peer's host has confirmed something so long ago, and more is on its way.
constexpr Delivery owes(Duration since_answer) {
  return {.complete = false, .awaits_answer = true, .since_answer = since_answer};
}
// The peer takes nothing now, and its host has said so.
constexpr Delivery full(Duration since_answer) {
  return {.complete = false, .awaits_answer = false, .since_answer = since_answer};
}

// A look each second, from `start` on.
std::vector<Duration> silences(const std::vector<Delivery>& looks) {
  SilenceWatch watch;
  std::vector<Duration> result;
  TimePoint now = TimePoint() + 1000s;
  for (const Delivery& delivery : looks) {
    result.push_back(watch.update(delivery, now));
    now += 1s;
  }
  return result;
}

}  // namespace

TEST_CASE("a host owes an answer from when something is on its way to it, or from its last one") {
  struct Case {
    std::vector<Delivery> looks;
    std::vector<Duration> silences;
  };
  const auto c = GENERATE(values<Case>({
      {{kDelivered, kDelivered}, {0s, 0s}},
      // Idle for a minute before it was asked anything.
      {{owes(60s), owes(61s), owes(62s)}, {0s, 1s, 2s}},
      // It answers all the time, but never everything.
      {{owes(1s), owes(0s), owes(1s), owes(0s)}, {0s, 0s, 1s, 0s}},
      // It answered, and fell silent.
      {{owes(0s), owes(0s), owes(1s), owes(2s), owes(3s)}, {0s, 0s, 1s, 2s, 3s}},
      {{owes(5s), owes(6s), kDelivered, owes(8s), owes(9s)}, {0s, 1s, 0s, 0s, 1s}},
      // Full for long; its kernel is asked at growing intervals, and answers.
      {{full(1s), full(7s), owes(13s), full(1s), full(30s)}, {0s, 0s, 0s, 0s, 0s}},
      // Full, and then silent.
      {{full(1s), owes(7s), owes(8s), owes(9s)}, {0s, 0s, 1s, 2s}},
  }));
  CHECK(silences(c.looks) == c.silences);
}
