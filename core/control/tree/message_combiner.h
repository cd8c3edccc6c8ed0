// Combines identical messages of several sources into one: ranks that run the same program send the same bytes, so
// messages are compared as bytes, and if all sources have sent the same only one of them is decoded.
//
// Pure; owned by the ControlNode. It stands in front of the *reader*: the RequestAggregator, or the Coordinator if a
// child sends for a whole subtree. A message is held until every source has sent the same bytes; it is then released
// once, for all of them. If a source sends something else, or after the delay, the held messages are released one by
// one. Nothing is held while the reader waits for a rank: ranks that have asked do not ask again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/control/protocol/agreement.h"
#include "core/control/protocol/messages.h"
#include "core/control/protocol/wire.h"

namespace hvd {

class MessageCombiner {
 public:
  // What is to be read now: messages of one source each, in this order; or the common message of all sources.
  struct Released {
    std::vector<std::pair<int, SubtreeMessage>> individual{};
    std::optional<Bytes> combined{};
    std::uint64_t applied_by_all = 0;  // in `combined`
  };

  // `sources`: the senders of messages to this node, itself included, with the ranks for which each sends.
  MessageCombiner(const std::map<int, RankSet>& sources, Duration delay) : delay_(delay) {
    for (const auto& [source, ranks] : sources) {
      sources_[source].ranks = ranks;
      all_.add(ranks);
    }
  }

  // `idle`: the reader waits for no rank. Throws Internal if the message is malformed.
  Released receive(int source, Bytes message, bool idle, TimePoint now) {
    const auto found = sources_.find(source);
    if (const auto opaque = peek(message); opaque && found != sources_.end() && opaque->ranks == found->second.ranks) {
      if (add_to_held(found->second, source, *opaque)) {
        return held_.front().senders.size() == sources_.size() ? release_combined() : Released();
      }
      if (idle && hold(found->second, source, *opaque, message, now)) return {};
    }
    Released released = release_individually();
    released.individual.emplace_back(source, decode_subtree_message(message));
    return released;
  }

  // Returns all held messages.
  Released release_individually() {
    Released released;
    for (const HeldMessage& held : held_) {
      for (const Sender& sender : held.senders) {
        released.individual.emplace_back(sender.source, message_of(sender, held.opaque));
      }
    }
    held_.clear();
    for (auto& [number, source] : sources_) source.held = 0;
    return released;
  }

  // The same, if the oldest has been held for too long.
  Released take(TimePoint now) { return now >= next_deadline() ? release_individually() : Released(); }
  Deadline next_deadline() const { return held_.empty() ? Deadline::max() : held_.front().since + delay_; }

 private:
  struct Source {
    RankSet ranks;
    std::size_t held = 0;  // how many of the held messages it has sent
  };
  struct Sender {
    int source;
    std::uint64_t applied_by_all;
    std::uint64_t latest;
  };
  struct HeldMessage {
    Bytes bytes;
    OpaqueMessage opaque;  // points into `bytes`
    std::vector<Sender> senders;
    TimePoint since;
  };

  // Whether the message may be sent for several sources: not a join, which changes who is waited for, and nothing that
  // differs by rank.
  static bool can_be_common(const RankMessage& message) {
    return std::ranges::none_of(message.requests, [](const SharedRequest& shared) {
      return shared.spec.collective == Collective::join || differs_by_rank(shared.spec.collective);
    });
  }
  static bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
  }

  // Whether the source has sent the same as others before it.
  bool add_to_held(Source& source, int number, const OpaqueMessage& message) {
    if (source.held == held_.size()) return false;
    HeldMessage& held = held_[source.held];
    if (message.applied != held.opaque.applied || !same(message.body, held.opaque.body)) return false;
    ++source.held;
    held.senders.push_back({number, message.applied_by_all, message.latest});
    return true;
  }
  // Whether a message that this source is the first to send is to be held.
  bool hold(Source& source, int number, const OpaqueMessage& message, Bytes& bytes, TimePoint now) {
    if (source.held < held_.size()) return false;
    if (!can_be_common(decode_subtree_message(bytes).messages.front())) return false;
    ++source.held;
    const Sender sender{number, message.applied_by_all, message.latest};
    // Moving the vector does not move the bytes.
    held_.push_back({std::move(bytes), message, {sender}, now});
    return true;
  }
  Released release_combined() {
    HeldMessage held = std::move(held_.front());
    held_.pop_front();
    for (auto& [number, source] : sources_) --source.held;
    OpaqueMessage& common = held.opaque;
    common.ranks = all_;
    for (const Sender& sender : held.senders) {
      common.applied_by_all = std::min(common.applied_by_all, sender.applied_by_all);
      common.latest = std::max(common.latest, sender.latest);
    }
    return {.combined = encode(common), .applied_by_all = common.applied_by_all};
  }
  SubtreeMessage message_of(const Sender& sender, OpaqueMessage opaque) const {
    opaque.applied_by_all = sender.applied_by_all;
    opaque.ranks = sources_.at(sender.source).ranks;
    opaque.latest = sender.latest;
    return decode_subtree_message(encode(opaque));
  }

  const Duration delay_;
  RankSet all_;
  std::map<int, Source> sources_;
  std::deque<HeldMessage> held_;
};

}  // namespace hvd
