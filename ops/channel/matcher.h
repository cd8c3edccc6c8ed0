// Which message goes to which receive: those of the same channel and tag, from the rank that the receive names or from
// any, in the order in which they came. Pure; the channel's thread.
//
// Whoever has a message asks for its receive first, and keeps the message here if there is none; and the other way
// round. So never are both here that belong together.
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

// A message that nobody receives yet.
struct Arrival {
  int source = 0;
  std::uint64_t channel = 0;
  std::int64_t tag = 0;
  std::uint64_t length = 0;
  std::optional<std::uint64_t> offer{};  // still lies with its sender, under this number,
  std::uint64_t address = 0;             // and there
  std::vector<std::byte> content{};      // else
};

class Matcher {
 public:
  // The first receive that this message is for, which is then no longer here.
  std::optional<Transfer> take_receive(int source, std::uint64_t channel, std::int64_t tag);
  void keep(Arrival arrival);

  // The first message that this receive is for; any source: the first of all of them.
  std::optional<Arrival> take_arrival(int source, std::uint64_t channel, std::int64_t tag);
  void keep(Transfer receive);

  // The receives that wait, in no particular order.
  void for_each_receive(const std::function<void(Transfer&)>& visit);
  // Those that `wanted` picks leave.
  std::vector<Transfer> take_receives(const std::function<bool(const Transfer&)>& wanted);
  // Offers of a rank that is gone lead nowhere.
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
  using Queues = std::map<Key, std::deque<Numbered<T>>>;  // none is empty

  template <typename T>
  static T take_front(Queues<T>& queues, typename Queues<T>::iterator queue);

  std::uint64_t next_number_ = 0;
  Queues<Transfer> receives_;
  Queues<Arrival> arrivals_;
};

}  // namespace hvd
