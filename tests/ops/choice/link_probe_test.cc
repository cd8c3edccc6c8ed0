// The probe over links whose speed is known, in simulated time, between ranks that are threads.
#include "ops/choice/cost_model.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/recording_transport.h"
#include "tests/support/sanitized.h"
#include "tests/support/simulated_transport.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

struct Probed {
  LinkCosts costs;
  Duration taken{};  // by the rank's clock
  std::vector<SentMessage> sent;
};

// What each rank has found.
std::vector<Probed> probe_all(int size, const std::vector<int>& members, LinkSpeed speed) {
  std::vector<Probed> probed(index(size));
  run_all_well({.kind = TransportKind::local, .size = size}, [&](std::unique_ptr<Transport> transport) {
    Probed& own = probed[index(transport->rank())];
    auto links = std::make_unique<SimulatedTransport>(std::move(transport), speed);
    const SimulatedTransport& clock = *links;
    RecordingTransport recording(std::move(links), own.sent);
    own.costs = measure_links({recording, members, deadline_after(20s), [&clock] { return clock.now(); }});
    own.taken = clock.now() - TimePoint{};
  });
  return probed;
}

bool equal(const LinkCosts& a, const LinkCosts& b) {
  return a.latency == b.latency && a.per_byte == b.per_byte && a.per_message == b.per_message &&
         a.reduce_per_byte == b.reduce_per_byte;
}

bool plausible(const LinkCosts& costs) {
  for (const double cost : {costs.latency, costs.per_byte, costs.per_message, costs.reduce_per_byte}) {
    if (!std::isfinite(cost) || cost <= 0) return false;
  }
  return true;
}

std::size_t total_bytes(const std::vector<SentMessage>& sent) {
  std::size_t bytes = 0;
  for (const SentMessage& message : sent) bytes += message.bytes;
  return bytes;
}

}  // namespace

TEST_CASE("the probe finds what the links are like, the same on all ranks, in time") {
  struct Case {
    const char* links;
    LinkSpeed speed;
    Duration longest;
  };
  const auto c = GENERATE(values<Case>({
      {"100 Mb/s", {.latency = 100us, .seconds_per_byte = 80e-9, .per_message = 4us}, 30ms},
      {"1 Gb/s", {.latency = 40us, .seconds_per_byte = 8e-9, .per_message = 4us}, 30ms},
      {"1 Gb/s, far", {.latency = 1ms, .seconds_per_byte = 8e-9, .per_message = 4us}, 50ms},
      {"10 Gb/s", {.latency = 20us, .seconds_per_byte = 0.8e-9, .per_message = 2us}, 15ms},
      {"100 Gb/s", {.latency = 10us, .seconds_per_byte = 0.08e-9, .per_message = 1us}, 3ms},
  }));
  const int size = GENERATE(2, 3, 4, 16);
  if (kSanitized && size > 3) return;
  CAPTURE(c.links, size);
  const auto probed = probe_all(size, all_ranks(size), c.speed);
  for (const Probed& rank : probed) {
    CHECK(equal(rank.costs, probed.front().costs));
    CHECK(rank.taken < c.longest);
  }
  const LinkCosts& costs = probed.front().costs;
  CHECK(costs.latency == Approx(seconds(c.speed.latency + c.speed.per_message)).epsilon(0.05));
  CHECK(costs.per_message == Approx(seconds(c.speed.per_message)).epsilon(0.05));
  CHECK(costs.per_byte == Approx(c.speed.seconds_per_byte).epsilon(0.05));
  CHECK(plausible(costs));
}

TEST_CASE("ranks that are no members learn the same") {
  const auto probed = probe_all(5, {0, 2, 3}, {.latency = 100us, .seconds_per_byte = 8e-9, .per_message = 2us});
  for (const Probed& rank : probed) CHECK(equal(rank.costs, probed.front().costs));
  CHECK(probed.front().costs.latency == Approx(102e-6).epsilon(0.05));
  // They say what they have to say, and measure nothing.
  CHECK(total_bytes(probed[1].sent) < 1000);
  CHECK(total_bytes(probed[2].sent) > 100'000);
}

TEST_CASE("the slowest link counts") {
  std::vector<LinkCosts> found(3);
  run_all_well({.kind = TransportKind::local, .size = 3}, [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    const LinkSpeed speed{.latency = rank == 1 ? 300us : 30us, .seconds_per_byte = rank == 2 ? 8e-9 : 0.8e-9};
    SimulatedTransport links(std::move(transport), speed);
    found[index(rank)] = measure_links({links, all_ranks(3), deadline_after(20s), [&links] { return links.now(); }});
  });
  for (const LinkCosts& costs : found) CHECK(equal(costs, found.front()));
  CHECK(found.front().latency > 90e-6);  // each step waits for a left neighbour, and the three for each other
  CHECK(found.front().per_byte == Approx(8e-9).epsilon(0.1));
}

TEST_CASE("links that let a burst pass at first are measured beyond it") {
  const LinkSpeed speed{
      .latency = 40us, .seconds_per_byte = 8e-9, .per_message = 4us, .burst_bytes = static_cast<double>(128 << 10)};
  const int size = GENERATE(2, 4);
  CHECK(probe_all(size, all_ranks(size), speed).front().costs.per_byte == Approx(8e-9).epsilon(0.1));
}

TEST_CASE("the probe runs over TCP, and beyond the ranks that all tell all") {
  const int size = GENERATE(2, 18);
  std::vector<LinkCosts> found(index(size));
  run_all_well({.kind = TransportKind::tcp, .size = size}, [&](std::unique_ptr<Transport> transport) {
    found[index(transport->rank())] = measure_links({*transport, all_ranks(size), deadline_after(20s)});
  });
  CHECK(plausible(found.front()));
  for (const LinkCosts& costs : found) CHECK(equal(costs, found.front()));
}

TEST_CASE("a peer that sends nonsense spoils no number") {
  class LyingTransport final : public Transport {
   public:
    explicit LyingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override {
      if (bytes.size() != sizeof(double)) return inner_->post_send(peer, tag, bytes);
      static constexpr double kLies[] = {std::numeric_limits<double>::quiet_NaN(), -1.0,
                                         std::numeric_limits<double>::infinity()};
      return inner_->post_send(peer, tag, std::as_bytes(std::span(&kLies[lies_++ % std::size(kLies)], 1)));
    }
    RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override {
      return inner_->post_receive(peer, tag, bytes);
    }
    void wait(RequestId call_id, Deadline deadline) override { inner_->wait(call_id, deadline); }
    bool wait_until(RequestId call_id, TimePoint until) override { return inner_->wait_until(call_id, until); }

   private:
    const std::unique_ptr<Transport> inner_;
    std::size_t lies_ = 0;
  };
  LinkCosts found;
  // How far to go on is no longer agreed, so that the two may part in disagreement; but within what numbers can be.
  run_transport_ranks({.kind = TransportKind::local, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    if (transport->rank() == 1) transport = std::make_unique<LyingTransport>(std::move(transport));
    const LinkCosts costs = measure_links({*transport, all_ranks(2), deadline_after(1s)});
    if (transport->rank() == 0) found = costs;
  });
  CHECK((found.latency == 0 || plausible(found)));
}

TEST_CASE("a rank that does not come ends the probe with the time that is left") {
  std::atomic<bool> over{false};
  const auto ended =
      run_transport_ranks({.kind = TransportKind::local, .size = 2}, [&](std::unique_ptr<Transport> transport) {
        if (transport->rank() == 0) {
          try {
            measure_links({*transport, all_ranks(2), deadline_after(200ms)});
          } catch (...) {
            over = true;
            throw;
          }
        }
        for (const Deadline end = deadline_after(20s); !over && Clock::now() < end;) std::this_thread::yield();
      });
  CHECK(ended[0].code() == StatusCode::timeout);
  CHECK(ended[0].message().find("rank 1") != std::string::npos);
}

TEST_CASE("the probe ends when the job is given up") {
  AbortFlag abort;
  const auto ended = run_transport_ranks({.kind = TransportKind::local, .size = 2, .abort = &abort},
                                         [&](std::unique_ptr<Transport> transport) {
                                           if (transport->rank() == 1) {
                                             std::this_thread::sleep_for(50ms);
                                             abort.raise(Status(StatusCode::peer_lost, "rank 7 is gone"));
                                             return;
                                           }
                                           measure_links({*transport, all_ranks(2), deadline_after(20s)});
                                         });
  CHECK(ended[0].message().find("rank 7 is gone") != std::string::npos);
}
