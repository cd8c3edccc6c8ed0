#include "core/control/negotiator.h"

#include <algorithm>
#include <utility>

#include "core/control/protocol/wire.h"

namespace hvd {

namespace {

// The longest transmission of a response list on a machine that is busy with other things.
constexpr Duration kResponseMargin = std::chrono::seconds(1);

CoordinatorOptions coordinator_options(const Topology& topology, const Config& config, std::int32_t process_set,
                                       bool locks) {
  return {.process_set = process_set,
          .size = topology.size,
          .job_ranks = topology.job_ranks,
          .cache_capacity = static_cast<std::size_t>(config.negotiation.cache_capacity),
          .stall_check = config.timeouts.stall_check,
          .stall_warning = config.timeouts.stall_warning,
          .stall_limit = config.timeouts.stall_limit,
          .join_scope = config.negotiation.join_scope,
          .locks = locks,
          .batching = {.coalescing = config.negotiation.coalescing,
                       .bucket_bytes = config.negotiation.fusion_threshold_bytes}};
}

// Grows with the distance from rank 0, so that the stopped rank's neighbour reports first.
ResponseTimeout response_timeout(const ControlTree& tree, const Config::Timeouts& timeouts) {
  if (tree.is_root() || !timeouts.gives_up_stalls()) return {};
  return {timeouts.stall_limit, timeouts.silence_limit(tree.depth) - timeouts.silence_limit(0) + kResponseMargin};
}

}  // namespace

ResponseTimeout::ResponseTimeout(Duration limit, Duration margin) : limit_(limit), margin_(margin) {}

bool ResponseTimeout::is_set() const { return limit_ > Duration::zero(); }

void ResponseTimeout::asked(TimePoint now) {
  if (!since_) since_ = now;
}

void ResponseTimeout::restart(TimePoint now, bool waits) { since_ = waits ? std::optional(now) : std::nullopt; }

Deadline ResponseTimeout::deadline(bool joins) const {
  if (!is_set() || !since_) return Deadline::max();
  return later(*since_, limit_ * (joins ? 2 : 1) + margin_);
}

Duration ResponseTimeout::waited(TimePoint now) const { return since_ ? now - *since_ : Duration::zero(); }

Negotiator::Negotiator(const Topology& topology, const Config& config, ControlChannel& channel, Metrics& metrics,
                       Timeline& timeline, std::int32_t process_set, bool locks)
    : topology_(topology),
      port_{channel, timeline},
      metrics_(metrics),
      node_(topology.rank, make_control_tree(topology), coordinator_options(topology, config, process_set, locks),
            [&topology](int rank) { return topology.describe(rank); }),
      response_timeout_(response_timeout(node_.tree(), config.timeouts)) {}

void Negotiator::Port::send(int to, Bytes message) { channel.send(to, std::move(message)); }

void Negotiator::Port::perform(NodeWork, auto body) { body(); }

void Negotiator::Port::read(NodeWork work, const SubtreeMessage& message) {
  if (work == NodeWork::coordinate && timeline.active()) mark(message);
}

void Negotiator::announce(const std::vector<const OperationSpec*>& specs, bool shut_down) {
  const SubtreeMessage own = node_.message_of(specs, cache_, shut_down);
  metrics_.cache_hits.add(own.messages.front().hits.size());
  metrics_.cache_misses.add(own.messages.front().requests.size());
  const TimePoint now = Clock::now();
  if (has_response_timeout() && !specs.empty()) response_timeout_.asked(now);
  node_.announce(port_, own, now);
}

std::optional<ResponseList> Negotiator::next(TimePoint now) {
  auto responses = next_message(now);
  if (!responses) return responses;
  node_.accept(*responses);
  metrics_.rounds.add();
  if (port_.timeline.marks_rounds()) port_.timeline.mark_round();
  return responses;
}

std::optional<ResponseList> Negotiator::next_message(TimePoint now) {
  while (auto arrived = port_.channel.receive()) {
    if (arrived->from == node_.tree().parent) {
      node_.forward(port_, arrived->payload, now);
      try {
        return decode_response_list(arrived->payload);
      } catch (const Internal& error) {
        throw Internal("the coordinator's message, which came from rank " + std::to_string(arrived->from) +
                       ", cannot be read: " + error.what() + "; do all ranks have the same version of hvd?");
      }
    }
    node_.receive(port_, arrived->from, std::move(arrived->payload), now);
  }
  node_.send_up(port_, now);
  if (node_.coordinator() == nullptr) return std::nullopt;
  auto responses = node_.coordinator()->respond(now);
  if (responses && !node_.tree().is_leaf()) node_.forward(port_, encode(*responses), now);
  return responses;
}

void Negotiator::Port::mark(const SubtreeMessage& message) {
  for (const RankMessage& part : message.messages) {
    for (const SharedRequest& shared : part.requests) {
      part.ranks.for_each([&](int rank) { timeline.mark_rank(shared.spec.name, rank); });
    }
  }
}

void Negotiator::flush_messages(Duration delay) {
  if (!node_.tree().is_leaf()) port_.channel.flush(deadline_after(delay));
}

ResponseCache& Negotiator::cache() { return cache_; }

void Negotiator::unlock(std::uint64_t steps) {
  if (Coordinator* coordinator = node_.coordinator()) coordinator->unlock(steps);
}

void Negotiator::tune(const Knobs& knobs) { node_.coordinator()->tune(knobs); }

void Negotiator::allow_locks() { node_.coordinator()->allow_locks(); }

bool Negotiator::has_response_timeout() const { return response_timeout_.is_set(); }

void Negotiator::performed(TimePoint now, bool waits) { response_timeout_.restart(now, waits); }

Deadline Negotiator::response_deadline(bool joins) const { return response_timeout_.deadline(joins); }

Status Negotiator::silence_of_parent(TimePoint now) const {
  const int parent = node_.tree().parent;
  return Status(StatusCode::timeout,
                "received nothing from " + topology_.describe(parent) + " for " +
                    age_text(response_timeout_.waited(now)) + ": that process is stopped or is not being scheduled",
                topology_.job_rank_of(parent));
}

Deadline Negotiator::next_deadline() const {
  const Deadline release = node_.next_release();
  const Coordinator* const coordinator = node_.coordinator();
  return coordinator != nullptr ? std::min(release, coordinator->next_deadline()) : release;
}

}  // namespace hvd
