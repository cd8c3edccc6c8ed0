#include "core/control/tree/message_combiner.h"

#include <algorithm>
#include <cstring>

#include "core/control/protocol/agreement.h"

namespace hvd {

namespace {

// Whether the message may be sent for several sources: not a join, which changes who is waited for, and nothing that
// differs by rank.
bool can_be_common(const RankMessage& message) {
  return std::ranges::none_of(message.requests, [](const SharedRequest& shared) {
    return shared.spec.collective == Collective::join || differs_by_rank(shared.spec.collective);
  });
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

MessageCombiner::MessageCombiner(const std::map<int, RankSet>& sources, Duration delay) : delay_(delay) {
  for (const auto& [source, ranks] : sources) {
    sources_[source].ranks = ranks;
    all_.add(ranks);
  }
}

MessageCombiner::Heard MessageCombiner::receive(int source, Bytes message, bool idle, TimePoint now) {
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

// Whether the source has sent the same as others before it.
bool MessageCombiner::join_in(Source& source, int number, const OpaqueMessage& message) {
  if (source.said == held_.size()) return false;
  Statement& statement = held_[source.said];
  if (message.applied != statement.opaque.applied || !same(message.said, statement.opaque.said)) return false;
  ++source.said;
  statement.speakers.push_back({number, message.applied_by_all, message.latest});
  return true;
}

// Whether a message that this source is the first to send is to be held.
bool MessageCombiner::begin(Source& source, int number, const OpaqueMessage& message, Bytes& bytes, TimePoint now) {
  if (source.said < held_.size()) return false;
  if (!can_be_common(decode_subtree_message(bytes).messages.front())) return false;
  ++source.said;
  const Speaker speaker{number, message.applied_by_all, message.latest};
  // Moving the vector does not move the bytes.
  held_.push_back({std::move(bytes), message, {speaker}, now});
  return true;
}

MessageCombiner::Heard MessageCombiner::take_front() {
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

MessageCombiner::Heard MessageCombiner::break_up() {
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

SubtreeMessage MessageCombiner::said_by(const Speaker& speaker, OpaqueMessage statement) const {
  statement.applied_by_all = speaker.applied_by_all;
  statement.ranks = sources_.at(speaker.source).ranks;
  statement.latest = speaker.latest;
  return decode_subtree_message(encode(statement));
}

}  // namespace hvd
