// One rank's part in the control plane: rank 0 decides what all ranks perform (Coordinator), ranks between it and
// others combine what their subtrees ask for (RequestAggregator), and a leaf of the control tree only asks.
//
// Pure: time is an argument, and messages go to a `Port`. The Negotiator runs a node over the ControlChannel, the
// simulation over a virtual network, and tests over queues. A Port has these members:
//   send(int to, Payload message)           sends Bytes, or what forward() was given.
//   perform(NodeWork work, auto body)       calls body(), and may measure it.
//   read(NodeWork, const SubtreeMessage&)   called in a body for every message that it has read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/control/coordinator/coordinator.h"
#include "core/control/protocol/response_cache.h"
#include "core/control/protocol/wire.h"
#include "core/control/tree/control_tree.h"
#include "core/control/tree/message_combiner.h"
#include "core/control/tree/request_aggregator.h"

namespace hvd {

// How long a node holds back requests that not all of its ranks have sent: longer than ranks of a job are usually
// apart, and too short to matter in a warning.
inline constexpr Duration kAggregationDelay = std::chrono::milliseconds(100);

enum class NodeWork : std::uint8_t {
  combine,     // a node compares a message with others, or parses it
  aggregate,   // messages that differ, or parts of them, go to the RequestAggregator
  coordinate,  // or to the Coordinator
  send_up,     // what the RequestAggregator has combined is encoded for the parent
};

class ControlNode {
 public:
  // `options`: of the Coordinator; options.sources is ignored: the tree determines it.
  ControlNode(int rank, ControlTree tree, const CoordinatorOptions& options, DescribeRank describe_rank,
              Duration delay = kAggregationDelay)
      : rank_(rank), tree_(std::move(tree)), describe_rank_(std::move(describe_rank)) {
    if (tree_.is_root()) {
      CoordinatorOptions own = options;
      own.sources = tree_.sources(rank);
      coordinator_ = std::make_unique<Coordinator>(own, describe_rank_);
    } else if (!tree_.is_leaf()) {
      aggregator_ = std::make_unique<RequestAggregator>(tree_.sources(rank), delay, describe_rank_);
    }
    // On a single host the coordinator must know at once which ranks have asked: see schedule_learner.h.
    const bool of_subtrees =
        std::ranges::any_of(tree_.children, [](const auto& child) { return child.second.count() > 1; });
    if (aggregator_ || of_subtrees) combiner_ = std::make_unique<MessageCombiner>(tree_.sources(rank), delay);
  }

  const ControlTree& tree() const { return tree_; }
  // Null except on rank 0.
  Coordinator* coordinator() const { return coordinator_.get(); }
  // The number of response lists that this rank has applied.
  std::uint64_t applied() const { return applied_; }
  // Whether messages are held back to be compared with others.
  bool holds_messages() const { return combiner_ && combiner_->next_deadline() != Deadline::max(); }

  // This rank's message: what it asks for, by cache slot where it can, and whether it leaves.
  SubtreeMessage message_of(const std::vector<const OperationSpec*>& specs, const ResponseCache& cache,
                            bool shut_down) const {
    RankMessage message{.ranks = RankSet(rank_), .applied = applied_, .latest = applied_, .shut_down = shut_down};
    for (const OperationSpec* spec : specs) {
      if (const auto slot = cache.find(*spec)) {
        message.hits.push_back(*slot);
      } else {
        message.requests.emplace_back(*spec);
      }
    }
    std::sort(message.hits.begin(), message.hits.end());
    SubtreeMessage own{.applied_by_all = applied_};
    own.messages.push_back(std::move(message));
    return own;
  }

  // Sends this rank's message to the parent, or processes it here.
  template <typename Port>
  void announce(Port& port, const SubtreeMessage& own, TimePoint now) {
    if (!reads_messages()) return port.send(tree_.parent, encode(own));
    if (combiner_) {
      receive(port, rank_, encode(own), now);
    } else {
      port.perform(NodeWork::coordinate, [&] { read(port, rank_, own, now); });
    }
    send_up(port, now);
  }

  // Processes a message of this rank or from one below it. Throws Internal, naming the rank, if it breaks the protocol.
  template <typename Port>
  void receive(Port& port, int source, Bytes message, TimePoint now) {
    MessageCombiner::Released released;
    port.perform(NodeWork::combine, [&] {
      released = combine(source, std::move(message), now);
      for (const auto& [from, part] : released.individual) port.read(NodeWork::combine, part);
    });
    read(port, released, now);
  }

  // Passes on what has been held for long enough: to the coordinator, or to the parent.
  template <typename Port>
  void send_up(Port& port, TimePoint now) {
    if (combiner_) read(port, combiner_->take(now), now);
    if (!aggregator_) return;
    std::optional<Bytes> bytes;
    port.perform(NodeWork::send_up, [&] {
      const auto message = aggregator_->take(now);
      if (!message) return;
      bytes = encode(*message);
      port.read(NodeWork::send_up, *message);
    });
    if (bytes) port.send(tree_.parent, std::move(*bytes));
  }
  // When to call send_up() even if nothing is received.
  Deadline next_release() const {
    const Deadline held = combiner_ ? combiner_->next_deadline() : Deadline::max();
    return aggregator_ ? std::min(held, aggregator_->next_deadline()) : held;
  }

  // Forwards a response list to the ranks below, which receive it as early as possible: before this rank applies it.
  template <typename Port, typename Payload>
  void forward(Port& port, const Payload& responses, TimePoint now) {
    for (const auto& [child, ranks] : tree_.children) port.send(child, responses);
    if (aggregator_) read(port, combiner_->release_individually(), now);
  }
  // This rank is about to apply the response list. Throws Internal if it is not the next one.
  void accept(const ResponseList& responses) {
    if (responses.number != applied_ + 1) throw Internal("the coordinator's messages came out of order");
    applied_ = responses.number;
    if (aggregator_) aggregator_->observe(responses);
  }

 private:
  bool reads_messages() const { return coordinator_ || aggregator_; }
  MessageCombiner::Released combine(int source, Bytes message, TimePoint now) {
    try {
      if (!reads_messages()) throw Internal("it speaks to a leaf");
      const bool idle = aggregator_ ? aggregator_->idle() : coordinator_->idle();
      if (combiner_) return combiner_->receive(source, std::move(message), idle, now);
      MessageCombiner::Released released;
      released.individual.emplace_back(source, decode_subtree_message(message));
      return released;
    } catch (const Internal& error) {
      throw Internal(describe_rank_(source) + " breaks the protocol: " + error.what());
    }
  }

  template <typename Port>
  void read(Port& port, const MessageCombiner::Released& released, TimePoint now) {
    const NodeWork work = aggregator_ ? NodeWork::aggregate : NodeWork::coordinate;
    if (!released.individual.empty()) {
      port.perform(work, [&] {
        for (const auto& [source, message] : released.individual) read(port, source, message, now);
      });
    }
    if (!released.combined) return;
    if (aggregator_) {
      aggregator_->note_combined(released.applied_by_all);
      return port.send(tree_.parent, *released.combined);
    }
    port.perform(work, [&] {
      const SubtreeMessage message = decode_subtree_message(*released.combined);
      coordinator_->receive_from_all(message, now);
      port.read(work, message);
    });
  }

  template <typename Port>
  void read(Port& port, int source, const SubtreeMessage& message, TimePoint now) {
    if (aggregator_) {
      aggregator_->receive(source, message, now);
      port.read(NodeWork::aggregate, message);
    } else {
      coordinator_->receive(source, message, now);
      port.read(NodeWork::coordinate, message);
    }
  }

  int rank_;
  ControlTree tree_;
  DescribeRank describe_rank_;
  std::unique_ptr<Coordinator> coordinator_;       // rank 0 only
  std::unique_ptr<RequestAggregator> aggregator_;  // ranks between rank 0 and others
  // In front of the aggregator, or of the coordinator if a child sends for several ranks.
  std::unique_ptr<MessageCombiner> combiner_;
  std::uint64_t applied_ = 0;
};

}  // namespace hvd
