// Matches messages and receives: those of the same channel and tag, from the rank that the receive names or from any
// rank, in order of arrival. Pure; used on the channel's thread.
//
// A caller with a message first looks for its receive, and keeps the message here only if there is none; and vice
// versa. Therefore a message and its receive are never both here.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "ops/channel/transfer.h"

namespace hvd {

// A message without a receive.
struct Arrival {
  int source = 0;
  std::uint64_t channel = 0;
  std::int64_t tag = 0;
  std::uint64_t length = 0;
  std::optional<std::uint64_t> offer{};  // still in the sender's memory, under this number
  std::uint64_t address = 0;             // and at this address;
  std::vector<std::byte> content{};      // otherwise its content
};

class Matcher {
 public:
  // Removes and returns the first receive that matches this message.
  std::optional<Transfer> take_receive(int source, std::uint64_t channel, std::int64_t tag);
  void keep(Arrival arrival);

  // Removes and returns the first message that matches this receive; for any source, the first of all ranks.
  std::optional<Arrival> take_arrival(int source, std::uint64_t channel, std::int64_t tag);
  void keep(Transfer receive);

  // Visits the waiting receives, in no particular order.
  void for_each_receive(const std::function<void(Transfer&)>& visit);
  // Removes and returns the receives for which `wanted` is true.
  std::vector<Transfer> take_receives(const std::function<bool(const Transfer&)>& wanted);
  // Drops the offers of a lost rank, which cannot be fetched.
  void drop_offers_from(int source);

  bool has_receives() const { return !receives_.empty(); }
  bool has_arrivals() const { return !arrivals_.empty(); }

 private:
  struct Key {
    std::uint64_t channel;
    std::int64_t tag;
    int source;  // kAnyRank sorts before the ranks
    auto operator<=>(const Key&) const = default;
  };
  template <typename T>
  struct Numbered {
    std::uint64_t number;
    T value;
  };
  template <typename T>
  using Queues = std::map<Key, std::deque<Numbered<T>>>;  // no queue is empty

  template <typename T>
  static T take_front(Queues<T>& queues, typename Queues<T>::iterator queue);

  std::uint64_t next_number_ = 0;
  Queues<Transfer> receives_;
  Queues<Arrival> arrivals_;
};

}  // namespace hvd
