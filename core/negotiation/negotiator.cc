#include "core/negotiation/negotiator.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/negotiation/wire.h"

namespace hvd {

namespace {

CoordinatorOptions coordinator_options(const Topology& topology, const Config& config, std::int32_t process_set,
                                       bool locks) {
  return {.process_set = process_set,
          .size = topology.size,
          .cache_capacity = static_cast<std::size_t>(config.cache_capacity),
          .stall_check = config.stall_check,
          .stall_warning = config.stall_warning,
          .stall_limit = config.stall_limit,
          .locks = locks};
}

}  // namespace

Negotiator::Negotiator(const Topology& topology, const Config& config, ControlChannel& channel, Metrics& metrics,
                       Timeline& timeline, std::int32_t process_set, bool locks)
    : topology_(topology), channel_(channel), metrics_(metrics), timeline_(timeline) {
  if (topology.rank != 0) return;
  coordinator_ = std::make_unique<Coordinator>(coordinator_options(topology, config, process_set, locks),
                                               [&topology](int rank) { return topology.describe(rank); });
}

void Negotiator::announce(const std::vector<const Request*>& requests, bool shut_down) {
  RankMessage message{.applied = applied_, .hits = {}, .requests = {}, .shut_down = shut_down};
  for (const Request* request : requests) {
    if (const auto slot = cache_.find(*request)) {
      message.hits.push_back(*slot);
    } else {
      message.requests.push_back(*request);
    }
  }
  metrics_.cache_hits.add(message.hits.size());
  metrics_.cache_misses.add(message.requests.size());
  std::sort(message.hits.begin(), message.hits.end());
  if (coordinator_) {
    mark(0, message);
    coordinator_->receive(0, message, Clock::now());
  } else {
    channel_.send(0, encode(message));
  }
}

std::optional<CoordinatorMessage> Negotiator::next(TimePoint now) {
  auto message = coordinator_ ? next_as_coordinator(now) : next_as_member();
  if (message) {
    applied_ = message->number;
    metrics_.rounds.add();
    if (timeline_.marks_rounds()) timeline_.mark_round();
  }
  return message;
}

std::optional<CoordinatorMessage> Negotiator::next_as_coordinator(TimePoint now) {
  while (auto arrived = channel_.receive()) {
    const RankMessage message = decoded(*arrived);
    mark(arrived->from, message);
    coordinator_->receive(arrived->from, message, now);
  }
  auto message = coordinator_->respond(now);
  if (message && topology_.size > 1) {
    const Bytes payload = encode(*message);
    for (int rank = 1; rank < topology_.size; ++rank) channel_.send(rank, payload);
  }
  return message;
}

void Negotiator::mark(int rank, const RankMessage& message) {
  if (!timeline_.active()) return;
  for (const Request& request : message.requests) timeline_.mark_rank(request.name, rank);
}

RankMessage Negotiator::decoded(const ControlChannel::Message& arrived) const {
  try {
    return decode_rank_message(arrived.payload);
  } catch (const Internal& error) {
    throw Internal(topology_.describe(arrived.from) + " breaks the protocol: " + error.what());
  }
}

std::optional<CoordinatorMessage> Negotiator::next_as_member() {
  auto arrived = channel_.receive();
  if (!arrived) return std::nullopt;
  auto message = decode_coordinator_message(arrived->payload);
  if (message.number != applied_ + 1) throw Internal("the coordinator's messages came out of order");
  return message;
}

std::shared_ptr<const Response> Negotiator::resolve(CoordinatorMessage::Entry entry) const {
  return entry.response ? std::make_shared<const Response>(std::move(*entry.response)) : cache_.at(entry.cached_slot);
}

void Negotiator::remember(const std::shared_ptr<const Response>& response, const Request* own) {
  if (response->slot != kNoSlot) cache_.store(response->slot, response, own);
}

Deadline Negotiator::next_deadline() const { return coordinator_ ? coordinator_->next_deadline() : Deadline::max(); }

}  // namespace hvd
