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
  struct Heard {
    std::vector<std::pair<int, SubtreeMessage>> apart{};
    std::optional<Bytes> together{};
    std::uint64_t applied_by_all = 0;  // in `together`
  };

  // `sources`: the senders of messages to this node, itself included, with the ranks for which each speaks.
  MessageCombiner(const std::map<int, RankSet>& sources, Duration delay) : delay_(delay) {
    for (const auto& [source, ranks] : sources) {
      sources_[source].ranks = ranks;
      all_.add(ranks);
    }
  }

  // `idle`: the reader waits for no rank. Throws Internal if the message is malformed.
  Heard receive(int source, Bytes message, bool idle, TimePoint now) {
    const auto found = sources_.find(source);
    if (const auto opaque = peek(message); opaque && found != sources_.end() && opaque->ranks == found->second.ranks) {
      if (join_in(found->second, source, *opaque)) {
        return held_.front().speakers.size() == sources_.size() ? take_front() : Heard();
      }
      if (idle && begin(found->second, source, *opaque, message, now)) return {};
    }
    Heard heard = break_up();
    heard.apart.emplace_back(source, decode_subtree_message(message));
    return heard;
  }

  // Returns all held messages.
  Heard break_up() {
    Heard heard;
    for (const Statement& statement : held_) {
      for (const Speaker& speaker : statement.speakers) {
        heard.apart.emplace_back(speaker.source, said_by(speaker, statement.opaque));
      }
    }
    held_.clear();
    for (auto& [number, source] : sources_) source.said = 0;
    return heard;
  }

  // The same, if the oldest has been held for too long.
  Heard take(TimePoint now) { return now >= next_deadline() ? break_up() : Heard(); }
  Deadline next_deadline() const { return held_.empty() ? Deadline::max() : held_.front().since + delay_; }

 private:
  struct Source {
    RankSet ranks;
    std::size_t said = 0;  // how many of the held statements it has sent
  };
  struct Speaker {
    int source;
    std::uint64_t applied_by_all;
    std::uint64_t latest;
  };
  struct Statement {
    Bytes bytes;
    OpaqueMessage opaque;  // points into `bytes`
    std::vector<Speaker> speakers;
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
  bool join_in(Source& source, int number, const OpaqueMessage& message) {
    if (source.said == held_.size()) return false;
    Statement& statement = held_[source.said];
    if (message.applied != statement.opaque.applied || !same(message.said, statement.opaque.said)) return false;
    ++source.said;
    statement.speakers.push_back({number, message.applied_by_all, message.latest});
    return true;
  }
  // Whether a message that this source is the first to send is to be held.
  bool begin(Source& source, int number, const OpaqueMessage& message, Bytes& bytes, TimePoint now) {
    if (source.said < held_.size()) return false;
    if (!can_be_common(decode_subtree_message(bytes).messages.front())) return false;
    ++source.said;
    const Speaker speaker{number, message.applied_by_all, message.latest};
    // Moving the vector does not move the bytes.
    held_.push_back({std::move(bytes), message, {speaker}, now});
    return true;
  }
  Heard take_front() {
    Statement statement = std::move(held_.front());
    held_.pop_front();
    for (auto& [number, source] : sources_) --source.said;
    OpaqueMessage& common = statement.opaque;
    common.ranks = all_;
    for (const Speaker& speaker : statement.speakers) {
      common.applied_by_all = std::min(common.applied_by_all, speaker.applied_by_all);
      common.latest = std::max(common.latest, speaker.latest);
    }
    return {.together = encode(common), .applied_by_all = common.applied_by_all};
  }
  SubtreeMessage said_by(const Speaker& speaker, OpaqueMessage statement) const {
    statement.applied_by_all = speaker.applied_by_all;
    statement.ranks = sources_.at(speaker.source).ranks;
    statement.latest = speaker.latest;
    return decode_subtree_message(encode(statement));
  }

  const Duration delay_;
  RankSet all_;
  std::map<int, Source> sources_;
  std::deque<Statement> held_;
};

}  // namespace hvd
