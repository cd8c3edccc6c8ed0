// Ranks that run the same program say the same, byte for byte. Where many speak to one, this is what it listens with:
// messages are compared as bytes, and if all say the same only one of them is read.
//
// Pure; owned by the Negotiator of a node to which whole subtrees speak, and in front of its RequestAggregator or
// Coordinator (the reader). Messages are held back until everybody has said the same as the first, or somebody
// something else, or the delay has passed; in the latter cases the reader gets each as it came. Nothing is held while
// the reader waits for anybody, since those who have spoken already will not say it again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/negotiation/rank_message.h"
#include "core/negotiation/wire.h"

namespace hvd {

class MessageCombiner {
 public:
  // What is to be read now: from one source each, in this order; or what all of them have said, as one message.
  struct Heard {
    std::vector<std::pair<int, SubtreeMessage>> apart{};
    std::optional<Bytes> together{};
    std::uint64_t applied_by_all = 0;  // in `together`
  };

  // `sources`: who speaks for whom to this node, itself included.
  MessageCombiner(const std::map<int, RankSet>& sources, Duration delay);

  // `idle`: the reader waits for nobody. Throws Internal if the message cannot be read.
  Heard receive(int source, Bytes message, bool idle, TimePoint now);

  // All that is held, because the reader is to know.
  Heard break_up();

  // The same, if it has been held for too long.
  Heard take(TimePoint now) { return now >= next_deadline() ? break_up() : Heard(); }
  Deadline next_deadline() const { return held_.empty() ? Deadline::max() : held_.front().since + delay_; }

 private:
  struct Source {
    RankSet ranks;
    std::size_t said = 0;  // of what is held
  };
  struct Speaker {
    int source;
    std::uint64_t applied_by_all;
    std::uint64_t latest;
  };
  struct Statement {
    Bytes bytes;
    OpaqueMessage opaque;  // points into them
    std::vector<Speaker> speakers;
    TimePoint since;
  };

  bool join_in(Source& source, int number, const OpaqueMessage& message);
  bool begin(Source& source, int number, const OpaqueMessage& message, Bytes& bytes, TimePoint now);
  Heard take_front();
  SubtreeMessage said_by(const Speaker& speaker, OpaqueMessage statement) const;

  const Duration delay_;
  RankSet all_;
  std::map<int, Source> sources_;
  std::deque<Statement> held_;
};

}  // namespace hvd
