#include "core/control/control_node.h"

#include <algorithm>

#include "core/base/error.h"

namespace hvd {

ControlNode::ControlNode(int rank, ControlTree tree, const CoordinatorOptions& options, DescribeRank describe_rank,
                         Duration delay)
    : rank_(rank), tree_(std::move(tree)), describe_rank_(std::move(describe_rank)) {
  if (tree_.is_root()) {
    CoordinatorOptions own = options;
    own.sources = tree_.sources(rank);
    coordinator_ = std::make_unique<Coordinator>(own, describe_rank_);
  } else if (!tree_.is_leaf()) {
    aggregator_ = std::make_unique<RequestAggregator>(tree_.sources(rank), delay);
  }
  // On a single host the coordinator must know at once which ranks have asked: see schedule_learner.h.
  const bool of_subtrees =
      std::ranges::any_of(tree_.children, [](const auto& child) { return child.second.count() > 1; });
  if (aggregator_ || of_subtrees) combiner_ = std::make_unique<MessageCombiner>(tree_.sources(rank), delay);
}

SubtreeMessage ControlNode::message_of(const std::vector<const OperationSpec*>& specs, const ResponseCache& cache,
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

MessageCombiner::Heard ControlNode::listen(int source, Bytes message, TimePoint now) {
  try {
    if (!reads_messages()) throw Internal("it speaks to a leaf");
    const bool idle = aggregator_ ? aggregator_->idle() : coordinator_->idle();
    if (combiner_) return combiner_->receive(source, std::move(message), idle, now);
    MessageCombiner::Heard heard;
    heard.apart.emplace_back(source, decode_subtree_message(message));
    return heard;
  } catch (const Internal& error) {
    throw Internal(describe_rank_(source) + " breaks the protocol: " + error.what());
  }
}

Deadline ControlNode::next_release() const {
  const Deadline held = combiner_ ? combiner_->next_deadline() : Deadline::max();
  return aggregator_ ? std::min(held, aggregator_->next_deadline()) : held;
}

void ControlNode::accept(const CoordinatorMessage& answer) {
  if (answer.number != applied_ + 1) throw Internal("the coordinator's messages came out of order");
  applied_ = answer.number;
  if (aggregator_) aggregator_->pass(answer);
}

}  // namespace hvd
