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
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/execution/channel.h"

namespace hvd {

// A pending send or receive. Moved to the channel's thread, which completes it.
struct Transfer {
  Message message;
  EngineReference operation;
  TimePoint since{};
  bool stall_logged = false;  // whether its delay was logged
};

// Ends a transfer; to be called once for each. `source`: the sender of the message, if one was received.
inline void complete(Transfer& transfer, const Status& status, int source = kAnyRank) {
  const EngineReference operation = std::move(transfer.operation);
  operation->completion.source = source;
  if (operation->completion.complete(status)) operation->completion.wake();
}

// A message without a receive.
struct Arrival {
  int source = 0;
  std::uint64_t channel = 0;
  std::int64_t tag = 0;
  std::uint64_t length = 0;
  std::optional<std::uint64_t> offer{};  // the number of an offer, whose content is still in the sender's memory
  std::uint64_t address = 0;             // of the content in the sender's memory; for an offer only
  std::vector<std::byte> content{};      // empty for an offer
};

class Matcher {
 public:
  // Removes and returns the first receive that matches this message.
  std::optional<Transfer> take_receive(int source, std::uint64_t channel, std::int64_t tag) {
    const auto named = receives_.find({channel, tag, source});
    const auto any = receives_.find({channel, tag, kAnyRank});
    if (named == receives_.end() && any == receives_.end()) return std::nullopt;
    const bool takes_any = named == receives_.end() ||
                           (any != receives_.end() && any->second.front().number < named->second.front().number);
    return take_front(receives_, takes_any ? any : named);
  }

  void keep(Arrival arrival) {
    const Key key{arrival.channel, arrival.tag, arrival.source};
    arrivals_[key].push_back({next_number_++, std::move(arrival)});
  }

  // Removes and returns the first message that matches this receive; for any source, the first of all ranks.
  std::optional<Arrival> take_arrival(int source, std::uint64_t channel, std::int64_t tag) {
    auto first = arrivals_.end();
    if (source != kAnyRank) {
      first = arrivals_.find({channel, tag, source});
    } else {
      auto next = arrivals_.lower_bound({channel, tag, kAnyRank});
      for (; next != arrivals_.end() && next->first.channel == channel && next->first.tag == tag; ++next) {
        const bool earlier = first == arrivals_.end() || next->second.front().number < first->second.front().number;
        if (earlier) first = next;
      }
    }
    if (first == arrivals_.end()) return std::nullopt;
    return take_front(arrivals_, first);
  }

  void keep(Transfer receive) {
    const Key key{receive.message.channel, receive.message.tag, receive.message.peer};
    receives_[key].push_back({next_number_++, std::move(receive)});
  }

  // Visits the waiting receives, in no particular order.
  void for_each_receive(const std::function<void(Transfer&)>& visit) {
    for (auto& [key, queue] : receives_) {
      for (auto& waiting : queue) visit(waiting.value);
    }
  }

  // Removes and returns the receives for which `wanted` is true.
  std::vector<Transfer> take_receives(const std::function<bool(const Transfer&)>& wanted) {
    std::vector<Transfer> taken;
    for (auto& [key, queue] : receives_) {
      std::deque<Numbered<Transfer>> left;
      for (auto& waiting : queue) {
        if (wanted(waiting.value)) {
          taken.push_back(std::move(waiting.value));
        } else {
          left.push_back(std::move(waiting));
        }
      }
      queue = std::move(left);
    }
    std::erase_if(receives_, [](const auto& entry) { return entry.second.empty(); });
    return taken;
  }

  // Drops the offers of a lost rank, which cannot be fetched.
  void drop_offers_from(int source) {
    for (auto& [key, queue] : arrivals_) {
      if (key.source == source)
        std::erase_if(queue, [](const auto& waiting) { return waiting.value.offer.has_value(); });
    }
    std::erase_if(arrivals_, [](const auto& entry) { return entry.second.empty(); });
  }

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
  static T take_front(Queues<T>& queues, typename Queues<T>::iterator queue) {
    T taken = std::move(queue->second.front().value);
    queue->second.pop_front();
    if (queue->second.empty()) queues.erase(queue);
    return taken;
  }

  std::uint64_t next_number_ = 0;
  Queues<Transfer> receives_;
  Queues<Arrival> arrivals_;
};

}  // namespace hvd
