// The virtual clock, and a simulated network between ranks, by the LogGP model (Alexandrov, Ionescu, Schauser,
// Scheiman, 1995): a message takes a latency L, an overhead o of its sender's and its receiver's processor, and a gap G
// for each byte.
//
// A host has one connection to the network, which carries one byte at a time in each direction: that limits a node with
// many children. Inside a host messages go through shared memory, which has its own parameters. The order between two
// ranks is preserved, as by TCP. A message between hosts may be delayed (jitter) or lost, and is then sent again after
// a timeout; messages behind it wait.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/net/frame.h"

namespace hvd::simulation {

// The virtual clock and its events, in order of time. Time advances only from one event to the next.
class EventQueue {
 public:
  TimePoint now() const { return now_; }

  // Schedules an event at that time, or now if it has passed; after events scheduled earlier for the same time.
  void at(TimePoint when, std::function<void()> what) {
    events_.push_back({std::max(when, now_), ++filed_, std::move(what)});
    std::push_heap(events_.begin(), events_.end(), later);
  }

  // Runs the next event. Returns false if there is none.
  bool step() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.when;
    event.what();
    return true;
  }

 private:
  struct Event {
    TimePoint when;
    std::uint64_t order;
    std::function<void()> what;
  };
  static bool later(const Event& a, const Event& b) { return a.when != b.when ? a.when > b.when : a.order > b.order; }

  TimePoint now_{};
  std::uint64_t filed_ = 0;
  std::vector<Event> events_;  // a heap
};

struct LinkParameters {
  Duration latency{};
  Duration overhead{};  // at the sender, and again at the receiver
  double gbit = 1;      // per second
};

struct NetworkParameters {
  LinkParameters between_hosts{.latency = 12us, .overhead = 2us, .gbit = 25};
  LinkParameters within_host{.latency = 1us, .overhead = 200ns, .gbit = 64};
  // Between hosts:
  Duration jitter{};                // mean additional time of a message, exponentially distributed
  double drop = 0;                  // share of messages that are lost
  Duration retransmission = 200ms;  // TCP's shortest timeout on Linux
};

// What a rank has sent.
struct Traffic {
  std::int64_t messages = 0;  // between hosts
  std::int64_t bytes = 0;     // of these messages, without the overhead of TCP/IP
  std::int64_t local_messages = 0;
};

// The transmission time of `bytes` on a link.
inline Duration gap(const LinkParameters& link, std::size_t bytes) {
  return std::chrono::round<Duration>(
      std::chrono::duration<double, std::nano>(8.0 * static_cast<double>(bytes) / link.gbit));
}

// Bytes of a message on Ethernet: with the header of our frame, and those of each segment.
inline std::size_t with_headers(std::size_t bytes) {
  constexpr std::size_t kSegmentBytes = 1448;      // of TCP with timestamps on Ethernet
  constexpr std::size_t kSegmentHeaderBytes = 90;  // Ethernet with preamble and gap, IPv4, TCP
  constexpr std::size_t kFrameKindBytes = 1;       // see ControlLinks
  const std::size_t framed = bytes + kFrameHeaderBytes + kFrameKindBytes;
  return framed + (framed + kSegmentBytes - 1) / kSegmentBytes * kSegmentHeaderBytes;
}

class Network {
 public:
  // `host_of`: by rank.
  Network(EventQueue& queue, const NetworkParameters& parameters, const std::vector<int>& host_of, std::uint64_t seed)
      : queue_(queue),
        parameters_(parameters),
        host_of_(host_of),
        random_(seed),
        ports_(index(host_of.back() + 1)),
        traffic_(host_of.size()),
        lost_(host_of.size()) {}

  // Transmits a message whose sender's processing is done at `ready`. A lost rank sends and receives nothing.
  void send(int from, int to, std::size_t bytes, TimePoint ready, std::function<void()> deliver) {
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

  const LinkParameters& link(int from, int to) const {
    return same_host(from, to) ? parameters_.within_host : parameters_.between_hosts;
  }

  void lose(int rank) { lost_[index(rank)] = true; }
  bool lost(int rank) const { return lost_[index(rank)]; }

  // Since the last reset.
  const std::vector<Traffic>& traffic() const { return traffic_; }
  void reset_traffic() { traffic_.assign(traffic_.size(), {}); }

 private:
  struct Port {  // of a host
    TimePoint out_free{};
    TimePoint in_free{};
  };

  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
  bool same_host(int a, int b) const { return host_of_[index(a)] == host_of_[index(b)]; }
  void send_between_hosts(int from, int to, std::size_t bytes, TimePoint ready, std::function<void()> deliver) {
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
  void deliver_in_order(int from, int to, TimePoint when, std::function<void()> deliver) {
    queue_.at(in_order(arrived_, from, to, when), [this, to, deliver = std::move(deliver)] {
      if (!lost(to)) deliver();
    });
  }
  // Not before the previous message between the two ranks.
  TimePoint in_order(std::unordered_map<std::uint64_t, TimePoint>& last, int from, int to, TimePoint when) const {
    TimePoint& before = last[(static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint64_t>(to)];
    return before = std::max(before, when);
  }
  // Jitter, and a timeout for each time that the message is lost.
  Duration delay() {
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
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  EventQueue& queue_;
  const NetworkParameters parameters_;
  const std::vector<int>& host_of_;
  std::mt19937_64 random_;
  std::vector<Port> ports_;                                // by host
  std::unordered_map<std::uint64_t, TimePoint> arriving_;  // by pair of ranks: when the last message began to arrive,
  std::unordered_map<std::uint64_t, TimePoint> arrived_;   // and when it had arrived
  std::vector<Traffic> traffic_;                           // by rank
  std::vector<bool> lost_;                                 // by rank
};

}  // namespace hvd::simulation
