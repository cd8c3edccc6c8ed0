#include "core/control/tree/request_aggregator.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/control/protocol/agreement.h"

namespace hvd {

namespace {

// Requests with different sizes by rank are combined into one with parts, which needs a first dimension.
bool can_be_shared(const OperationSpec& spec) {
  return !differs_by_rank(spec.collective) ||
         std::ranges::none_of(spec.tensors, [](const TensorSpec& tensor) { return tensor.shape.empty(); });
}

bool is_like(const OperationSpec& a, const OperationSpec& b) {
  return a.process_set == b.process_set && can_be_shared(b) && agree(a, b);
}

}  // namespace

RequestAggregator::RequestAggregator(const std::map<int, RankSet>& sources, Duration delay)
    : delay_(delay), sources_(sources) {
  for (const auto& [source, ranks] : sources) subtree_.add(ranks);
}

void RequestAggregator::receive(int source, const SubtreeMessage& message, TimePoint now) {
  Sources::Source* const found = sources_.find(source);
  const auto speaks_for = [&](const RankMessage& part) {
    return !part.ranks.empty() && found->ranks.contains(part.ranks);
  };
  const auto is_possible = [&](const RankMessage& part) {
    return part.latest <= part.applied && part.applied <= passed_;
  };
  if (found == nullptr || !std::ranges::all_of(message.messages, speaks_for)) {
    throw Internal("rank " + std::to_string(source) + " breaks the protocol: it speaks for others");
  }
  if (message.applied_by_all > passed_ || !std::ranges::all_of(message.messages, is_possible)) {
    throw Internal("rank " + std::to_string(source) + " breaks the protocol: it says it has applied what there is not");
  }
  // A rank that leaves while its join ends may not have applied what is assumed.
  found->applied = std::max(found->applied, message.applied_by_all);
  for (const RankMessage& part : message.messages) hear(part, now);
}

void RequestAggregator::hear(const RankMessage& message, TimePoint now) {
  if (message.shut_down) {
    release_all();
    on_behalf_of(message).shut_down = true;
  }
  if (message.applied < locked_by_) return;
  for (const std::uint32_t slot : message.hits) hear_hit(message, slot, now);
  for (const SharedRequest& request : message.requests) {
    if (request.spec.collective == Collective::join) {
      hear_join(message, request);
    } else {
      hear_request(message, request, now);
    }
  }
}

void RequestAggregator::hear_hit(const RankMessage& message, std::uint32_t slot, TimePoint now) {
  if (slot >= slots_.size() || slots_[slot].name.empty() || message.applied < slots_[slot].filled_by) {
    // It means the slot's earlier content, or is invalid.
    on_behalf_of(message).hits.push_back(slot);
    return hear_late_hit(message, slot, now);
  }
  const std::string& name = slots_[slot].name;
  enter(name, message.ranks, now).said_alike(slot).add(message);
  settle(name, message.ranks);
}

// The hit has gone up; the negotiation of the name that it meant need not wait for these ranks.
void RequestAggregator::hear_late_hit(const RankMessage& message, std::uint32_t slot, TimePoint now) {
  if (slot >= slots_.size() || slots_[slot].last_name.empty() || message.applied < slots_[slot].last_filled_by) return;
  const std::string& name = slots_[slot].last_name;
  enter(name, message.ranks, now);
  settle(name, message.ranks);
}

void RequestAggregator::hear_request(const RankMessage& message, const SharedRequest& request, TimePoint now) {
  const std::string& name = request.spec.name;
  Statement& statement = enter(name, message.ranks, now).said_alike(request.spec);
  if (differs_by_rank(request.spec.collective) && can_be_shared(request.spec)) {
    auto part = request.parts.begin();
    message.ranks.for_each([&](int rank) {
      statement.parts.emplace(rank, part != request.parts.end() ? *part++ : part_of(request.spec));
    });
  }
  statement.add(message);
  settle(name, message.ranks);
}

// A join comes after everything that the ranks have asked for.
void RequestAggregator::hear_join(const RankMessage& message, const SharedRequest& request) {
  release_all();
  joined_.add(message.ranks);
  join_name_ = request.spec.name;
  on_behalf_of(message).requests.push_back(request);
  std::erase_if(rounds_, [this](const auto& entry) { return complete(entry.second); });
}

// The negotiation of the name that these ranks enter: a new one if they have asked in the last.
RequestAggregator::Round& RequestAggregator::enter(const std::string& name, const RankSet& ranks, TimePoint now) {
  Round& round = rounds_[name];
  if (round.heard.intersects(ranks)) {
    release(round);
    round.heard.clear();
  }
  if (round.heard.empty()) round.since = now;
  round.heard.add(ranks);
  next_release_ = std::min(next_release_, round.since + delay_);
  return round;
}

RequestAggregator::Statement& RequestAggregator::Round::said_alike(std::uint32_t slot) {
  for (Statement& statement : statements) {
    if (statement.slot == slot) return statement;
  }
  statements.emplace_back().slot = slot;
  return statements.back();
}

RequestAggregator::Statement& RequestAggregator::Round::said_alike(const OperationSpec& spec) {
  for (Statement& statement : statements) {
    if (statement.spec && is_like(*statement.spec, spec)) return statement;
  }
  statements.emplace_back().spec = spec;
  return statements.back();
}

// Whether every rank has asked or joined.
bool RequestAggregator::complete(const Round& round) const {
  if (joined_.empty()) return round.heard.count() == subtree_.count();
  return difference(difference(subtree_, joined_), round.heard).empty();
}

// Sends the statements up if the whole subtree has asked.
void RequestAggregator::settle(const std::string& name, const RankSet& ranks) {
  const auto found = rounds_.find(name);
  Round& round = found->second;
  const bool all = complete(round);
  if (!all && !joined_.intersects(ranks)) return;
  release(round);
  if (all) rounds_.erase(found);
}

// ---- Down

void RequestAggregator::pass(const CoordinatorMessage& message) {
  for (const auto& entry : message.entries) {
    if (!entry.response) {
      if (entry.cached_slot < slots_.size()) end_negotiation(slots_[entry.cached_slot].name);
      continue;
    }
    const Response& response = *entry.response;
    end_join_as_told(response, message.number);
    if (response.kind == Response::Kind::lock) {
      forget_asked(message.number);
    } else {
      end_negotiation(response.spec.name);
    }
    if (response.kind != Response::Kind::execute || response.slot == kNoSlot) continue;
    if (response.slot >= slots_.size()) slots_.resize(response.slot + std::size_t{1});
    Slot& slot = slots_[response.slot];
    const auto evicted = rounds_.find(slot.name);
    if (evicted != rounds_.end()) release(evicted->second);  // their hits mean the old content
    slot = {response.spec.name, message.number, std::move(slot.name), slot.filled_by};
  }
  passed_ = message.number;
}

// What ranks have sent for it still counts, for this negotiation or the next.
void RequestAggregator::end_negotiation(const std::string& name) {
  const auto found = rounds_.find(name);
  if (found == rounds_.end()) return;
  release(found->second);
  rounds_.erase(found);
}

// A join that is given up may end for some ranks before others have come to it.
void RequestAggregator::end_join_as_told(const Response& response, std::uint64_t number) {
  if (response.kind == Response::Kind::all_joined) return end_join(RankSet(joined_), number);
  if (response.kind != Response::Kind::error || response.spec.name != join_name_) return;
  RankSet ranks;
  for (const int rank : response.ranks) ranks.add(RankSet(rank));
  end_join(ranks, number);
}

void RequestAggregator::end_join(const RankSet& ranks, std::uint64_t number) {
  sources_.end_join(joined_, ranks, number);
  joined_.remove(ranks);
}

// A schedule is locked: when it is given up, each rank asks again.
void RequestAggregator::forget_asked(std::uint64_t number) {
  locked_by_ = number;
  end_join(RankSet(joined_), number);
  rounds_.clear();
  std::erase_if(outgoing_, [](const RankMessage& message) { return !message.shut_down; });
}

// ---- Up

void RequestAggregator::release(Round& round) {
  for (Statement& statement : round.statements) {
    RankMessage& message = outgoing(statement.ranks, statement.latest);
    if (!statement.spec) {
      message.hits.push_back(statement.slot);
      continue;
    }
    SharedRequest shared(std::move(*statement.spec));
    if (statement.parts.size() == 1) put_part(statement.parts.begin()->second, shared.spec);
    if (statement.parts.size() > 1) {
      for (auto& [rank, part] : statement.parts) shared.parts.push_back(std::move(part));
      put_part(shared.parts.front(), shared.spec);
    }
    message.requests.push_back(std::move(shared));
  }
  round.statements.clear();
}

void RequestAggregator::release_all() {
  for (auto& [name, round] : rounds_) release(round);
}

// Starts a message for exactly these ranks.
RankMessage& RequestAggregator::on_behalf_of(const RankMessage& message) {
  return outgoing_.emplace_back(
      RankMessage{.ranks = message.ranks, .applied = message.applied, .latest = message.latest});
}

// Its hits refer to the slots' content after the messages passed so far.
RankMessage& RequestAggregator::outgoing(const RankSet& ranks, std::uint64_t latest) {
  if (outgoing_.empty() || outgoing_.back().ranks != ranks || outgoing_.back().applied != passed_) {
    outgoing_.push_back({.ranks = ranks, .applied = passed_});
  }
  outgoing_.back().latest = std::max(outgoing_.back().latest, latest);
  return outgoing_.back();
}

std::optional<SubtreeMessage> RequestAggregator::take(TimePoint now) {
  if (now >= next_release_) {
    next_release_ = Deadline::max();
    for (auto& [name, round] : rounds_) {
      if (round.statements.empty()) continue;
      if (now >= round.since + delay_) {
        release(round);
      } else {
        next_release_ = std::min(next_release_, round.since + delay_);
      }
    }
  }
  if (outgoing_.empty()) return std::nullopt;
  for (RankMessage& message : outgoing_) std::sort(message.hits.begin(), message.hits.end());
  return SubtreeMessage{.applied_by_all = sources_.applied_by_all(passed_, joined_),
                        .messages = std::exchange(outgoing_, {})};
}

}  // namespace hvd
