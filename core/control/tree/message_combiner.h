// Combines identical messages of several sources into one: ranks that run the same program send the same bytes, so
// messages are compared as bytes, and if all sources have sent the same only one of them is decoded.
//
// Pure; owned by the ControlNode, in front of its RequestAggregator, or of its Coordinator if whole subtrees speak to
// it (the reader). Messages are held back until every source has sent the same as the first, or one has sent something
// else, or the delay has passed; in the latter cases the reader gets each as it came. Nothing is held while the reader
// waits for any rank, since ranks that have asked already will not ask again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
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
  MessageCombiner(const std::map<int, RankSet>& sources, Duration delay);

  // `idle`: the reader waits for no rank. Throws Internal if the message is malformed.
  Heard receive(int source, Bytes message, bool idle, TimePoint now);

  // Returns all held messages.
  Heard break_up();

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
