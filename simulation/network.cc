#include "simulation/network.h"

#include <cmath>
#include <memory>
#include <utility>

#include "core/net/frame.h"

namespace hvd::simulation {

namespace {

constexpr std::size_t kSegmentBytes = 1448;      // of TCP with timestamps on Ethernet
constexpr std::size_t kSegmentHeaderBytes = 90;  // Ethernet with preamble and gap, IPv4, TCP
constexpr std::size_t kFrameKindBytes = 1;       // see ControlLinks

}  // namespace

Duration gap(const LinkParameters& link, std::size_t bytes) {
  return std::chrono::round<Duration>(
      std::chrono::duration<double, std::nano>(8.0 * static_cast<double>(bytes) / link.gbit));
}

std::size_t with_headers(std::size_t bytes) {
  const std::size_t framed = bytes + kFrameHeaderBytes + kFrameKindBytes;
  return framed + (framed + kSegmentBytes - 1) / kSegmentBytes * kSegmentHeaderBytes;
}

Network::Network(EventQueue& queue, const NetworkParameters& parameters, const std::vector<int>& host_of,
                 std::uint64_t seed)
    : queue_(queue),
      parameters_(parameters),
      host_of_(host_of),
      random_(seed),
      ports_(index(host_of.back() + 1)),
      traffic_(host_of.size()),
      lost_(host_of.size()) {}

const LinkParameters& Network::link(int from, int to) const {
  return same_host(from, to) ? parameters_.within_host : parameters_.between_hosts;
}

void Network::send(int from, int to, std::size_t bytes, TimePoint ready, std::function<void()> deliver) {
  if (lost(from)) return;
  Traffic& traffic = traffic_[index(from)];
  if (!same_host(from, to)) {
    ++traffic.messages;
    traffic.bytes += static_cast<std::int64_t>(bytes);
    return send_between_hosts(from, to, with_headers(bytes), ready, std::move(deliver));
  }
  ++traffic.local_messages;
  const LinkParameters& link = parameters_.within_host;
  deliver_in_order(from, to, ready + link.latency + gap(link, bytes), std::move(deliver));
}

void Network::send_between_hosts(int from, int to, std::size_t bytes, TimePoint ready, std::function<void()> deliver) {
  const Duration time = gap(parameters_.between_hosts, bytes);
  Port& out = ports_[index(host_of_[index(from)])];
  const TimePoint begin = std::max(ready, out.out_free);
  out.out_free = begin + time;
  const TimePoint head = in_order(arriving_, from, to, begin + parameters_.between_hosts.latency + delay());
  queue_.at(head, [this, from, to, time, deliver = std::move(deliver)]() mutable {
    Port& in = ports_[index(host_of_[index(to)])];
    in.in_free = std::max(queue_.now(), in.in_free) + time;
    deliver_in_order(from, to, in.in_free, std::move(deliver));
  });
}

void Network::deliver_in_order(int from, int to, TimePoint when, std::function<void()> deliver) {
  queue_.at(in_order(arrived_, from, to, when), [this, to, deliver = std::move(deliver)] {
    if (!lost(to)) deliver();
  });
}

// Not before the previous message between the two ranks.
TimePoint Network::in_order(std::unordered_map<std::uint64_t, TimePoint>& last, int from, int to,
                            TimePoint when) const {
  TimePoint& before = last[(static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint64_t>(to)];
  return before = std::max(before, when);
}

// Jitter, and a timeout for each time that the message is lost.
Duration Network::delay() {
  Duration total{};
  if (parameters_.jitter > Duration::zero()) {
    const double times = -std::log1p(-uniform());
    total += std::chrono::round<Duration>(std::chrono::duration<double, std::nano>(parameters_.jitter) * times);
  }
  if (parameters_.drop <= 0) return total;
  while (uniform() < parameters_.drop) total += parameters_.retransmission;
  return total;
}

// In [0, 1), identical on every machine.
double Network::uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

}  // namespace hvd::simulation
