#include "core/control/negotiator.h"

#include <algorithm>
#include <cstdio>

#include "core/base/error.h"
#include "core/control/protocol/wire.h"

namespace hvd {

namespace {

// How long a node of the tree holds back requests that not all of its ranks have sent: longer than ranks of a job are
// usually apart, and too short to matter in a warning.
constexpr Duration kAggregationDelay = std::chrono::milliseconds(100);

// The longest transmission of an answer on a machine that is busy with other things.
constexpr Duration kAnswerTime = std::chrono::seconds(1);

CoordinatorOptions coordinator_options(const Topology& topology, const ControlTree& tree, const Config& config,
                                       std::int32_t process_set, bool locks) {
  return {.process_set = process_set,
          .size = topology.size,
          .sources = tree.sources(0),
          .cache_capacity = static_cast<std::size_t>(config.negotiation.cache_capacity),
          .stall_check = config.timeouts.stall_check,
          .stall_warning = config.timeouts.stall_warning,
          .stall_limit = config.timeouts.stall_limit,
          .join_scope = config.negotiation.join_scope,
          .locks = locks,
          .answers = {.coalescing = config.negotiation.coalescing,
                      .bucket_bytes = config.negotiation.fusion_threshold_bytes}};
}

// Grows with the distance from rank 0, so that the stopped rank's neighbour reports first.
AnswerLimit answer_limit(const ControlTree& tree, const Config::Timeouts& timeouts) {
  if (tree.is_root() || !timeouts.gives_up_stalls()) return {};
  return {timeouts.stall_limit, timeouts.silence_limit(tree.depth) - timeouts.silence_limit(0) + kAnswerTime};
}

}  // namespace

Negotiator::Negotiator(const Topology& topology, const Config& config, ControlChannel& channel, Metrics& metrics,
                       Timeline& timeline, std::int32_t process_set, bool locks)
    : topology_(topology),
      tree_(make_control_tree(topology)),
      channel_(channel),
      metrics_(metrics),
      timeline_(timeline),
      answer_limit_(answer_limit(tree_, config.timeouts)) {
  if (tree_.is_root()) {
    coordinator_ = std::make_unique<Coordinator>(coordinator_options(topology, tree_, config, process_set, locks),
                                                 [&topology](int rank) { return topology.describe(rank); });
  } else if (!tree_.is_leaf()) {
    request_aggregator_ = std::make_unique<RequestAggregator>(tree_.sources(topology.rank), kAggregationDelay);
  }
  // On a single host the coordinator must know at once which ranks have asked: see schedule_learner.h.
  const bool of_subtrees =
      std::ranges::any_of(tree_.children, [](const auto& child) { return child.second.count() > 1; });
  if (request_aggregator_ || of_subtrees)
    message_combiner_ = std::make_unique<MessageCombiner>(tree_.sources(topology.rank), kAggregationDelay);
}

void Negotiator::announce(const std::vector<const OperationSpec*>& specs, bool shut_down) {
  RankMessage message{.ranks = RankSet(topology_.rank), .applied = applied_, .latest = applied_};
  message.shut_down = shut_down;
  for (const OperationSpec* spec : specs) {
    if (const auto slot = cache_.find(*spec)) {
      message.hits.push_back(*slot);
    } else {
      message.requests.emplace_back(*spec);
    }
  }
  if (limits_answers() && !specs.empty()) answer_limit_.asked(Clock::now());
  metrics_.cache_hits.add(message.hits.size());
  metrics_.cache_misses.add(message.requests.size());
  std::sort(message.hits.begin(), message.hits.end());
  SubtreeMessage own{.applied_by_all = applied_};
  own.messages.push_back(std::move(message));
  if (tree_.is_leaf() && !tree_.is_root()) {
    channel_.send(tree_.parent, encode(own));
  } else {
    const TimePoint now = Clock::now();
    message_combiner_ ? hear(topology_.rank, encode(own), now) : read(topology_.rank, own, now);
    send_up(now);
  }
}

// Processes a message of this rank or of one below it.
void Negotiator::hear(int source, Bytes message, TimePoint now) { read(listen(source, std::move(message), now), now); }

MessageCombiner::Heard Negotiator::listen(int source, Bytes message, TimePoint now) {
  try {
    const bool idle = request_aggregator_ ? request_aggregator_->idle() : coordinator_->idle();
    if (message_combiner_) return message_combiner_->receive(source, std::move(message), idle, now);
    MessageCombiner::Heard heard;
    heard.apart.emplace_back(source, decode_subtree_message(message));
    return heard;
  } catch (const Internal& error) {
    throw Internal(topology_.describe(source) + " breaks the protocol: " + error.what());
  }
}

void Negotiator::read(const MessageCombiner::Heard& heard, TimePoint now) {
  for (const auto& [source, message] : heard.apart) read(source, message, now);
  if (!heard.together) return;
  if (request_aggregator_) {
    request_aggregator_->let_pass(heard.applied_by_all);
    return channel_.send(tree_.parent, *heard.together);
  }
  const SubtreeMessage message = decode_subtree_message(*heard.together);
  coordinator_->receive_from_all(message, now);
  mark(message);
}

void Negotiator::read(int source, const SubtreeMessage& message, TimePoint now) {
  if (request_aggregator_) return request_aggregator_->receive(source, message, now);
  coordinator_->receive(source, message, now);
  mark(message);
}

// Passes on what has been held for long enough: to the coordinator, or to the parent.
void Negotiator::send_up(TimePoint now) {
  if (message_combiner_) read(message_combiner_->take(now), now);
  if (!request_aggregator_) return;
  if (const auto message = request_aggregator_->take(now)) channel_.send(tree_.parent, encode(*message));
}

void Negotiator::send_down(const Bytes& payload) {
  for (const auto& [child, ranks] : tree_.children) channel_.send(child, payload);
}

std::optional<CoordinatorMessage> Negotiator::next(TimePoint now) {
  auto message = coordinator_ ? next_as_coordinator(now) : next_as_member(now);
  if (message) {
    applied_ = message->number;
    metrics_.rounds.add();
    if (timeline_.marks_rounds()) timeline_.mark_round();
  }
  return message;
}

std::optional<CoordinatorMessage> Negotiator::next_as_coordinator(TimePoint now) {
  while (auto arrived = channel_.receive()) hear(arrived->from, std::move(arrived->payload), now);
  send_up(now);
  auto message = coordinator_->respond(now);
  if (message && !tree_.is_leaf()) send_down(encode(*message));
  return message;
}

std::optional<CoordinatorMessage> Negotiator::next_as_member(TimePoint now) {
  while (auto arrived = channel_.receive()) {
    if (arrived->from == tree_.parent) return from_parent(arrived->payload);
    if (!request_aggregator_)
      throw Internal(topology_.describe(arrived->from) + " breaks the protocol: it speaks to a leaf");
    hear(arrived->from, std::move(arrived->payload), now);
  }
  send_up(now);
  return std::nullopt;
}

// Forwards it first, so that the ranks below receive it as early as possible.
CoordinatorMessage Negotiator::from_parent(const Bytes& payload) {
  if (request_aggregator_) send_down(payload);
  CoordinatorMessage message = decode_coordinator_message(payload);
  if (message.number != applied_ + 1) throw Internal("the coordinator's messages came out of order");
  if (request_aggregator_) {
    read(message_combiner_->break_up(), Clock::now());
    request_aggregator_->pass(message);
  }
  return message;
}

void Negotiator::mark(const SubtreeMessage& message) {
  if (!timeline_.active()) return;
  for (const RankMessage& part : message.messages) {
    for (const SharedRequest& shared : part.requests) {
      part.ranks.for_each([&](int rank) { timeline_.mark_rank(shared.spec.name, rank); });
    }
  }
}

std::shared_ptr<const Response> Negotiator::resolve(CoordinatorMessage::Entry entry) const {
  return entry.response ? std::make_shared<const Response>(std::move(*entry.response)) : cache_.at(entry.cached_slot);
}

void Negotiator::remember(const std::shared_ptr<const Response>& response, const OperationSpec* own) {
  if (response->slot != kNoSlot) cache_.store(response->slot, response, own);
}

Status Negotiator::silence_of_parent(TimePoint now) const {
  char waited[32];
  std::snprintf(waited, sizeof waited, "%.1f s", seconds(answer_limit_.waited(now)));
  return Status(StatusCode::timeout, std::string("waited ") + waited + " for " + topology_.describe(tree_.parent) +
                                         " to answer, which is stopped or does not run for another reason");
}

Deadline Negotiator::next_deadline() const {
  const Deadline held = message_combiner_ ? message_combiner_->next_deadline() : Deadline::max();
  if (coordinator_) return std::min(held, coordinator_->next_deadline());
  return request_aggregator_ ? std::min(held, request_aggregator_->next_deadline()) : Deadline::max();
}

}  // namespace hvd
