// A node of the control tree between its subtree and its parent: combines the requests of all its ranks, name by name.
//
// Pure; owned by the ControlNode of a rank that has both a parent and children. Requests are held back by name until
// the whole subtree has asked, and then go up as one message of all these ranks, so that the messages and the work of a
// node do not grow with the size of the job. Nothing is held for longer than the aggregation delay: the requests for a
// name whose other ranks are late go up as they are, since the coordinator must be able to report which ranks are
// missing. A join or a leave goes up at once, and so does a hit that does not mean its slot's current content.
//
// The order of one rank's requests for one name is kept, and that of a join after everything before it. Only what this
// node needs is checked here: the coordinator checks the rest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/control/protocol/agreement.h"
#include "core/control/protocol/messages.h"
#include "core/control/protocol/rank_set.h"
#include "core/operation/operation_spec.h"

namespace hvd {

class RequestAggregator {
 public:
  // `sources`: the senders of messages to this node, itself included, with the ranks for which each speaks.
  RequestAggregator(const std::map<int, RankSet>& sources, Duration delay, DescribeRank describe_rank)
      : delay_(delay), describe_rank_(std::move(describe_rank)), sources_(sources) {
    for (const auto& [source, ranks] : sources) subtree_.add(ranks);
  }

  // Throws Internal, naming the source, if it speaks for ranks other than its own or of messages that it cannot have.
  void receive(int source, const SubtreeMessage& message, TimePoint now) {
    Sources::Source* const found = sources_.find(source);
    if (found == nullptr) violation(source, "sends messages to a rank that is not its parent");
    std::uint64_t applied = message.applied_by_all;
    for (const RankMessage& part : message.messages) {
      if (part.ranks.empty() || !found->ranks.contains(part.ranks)) violation(source, "speaks for others");
      if (part.latest > part.applied) violation(source, "contradicts itself about the messages that it has applied");
      applied = std::max(applied, part.applied);
    }
    if (applied > passed_) {
      violation(source, "claims to have applied message " + std::to_string(applied) + ", but only " +
                            std::to_string(passed_) + " were sent");
    }
    // A rank that leaves while its join ends may report a lower number than end_join() has assumed.
    found->applied = std::max(found->applied, message.applied_by_all);
    for (const RankMessage& part : message.messages) hear(part, now);
  }

  // All sources sent one combined message, which bypasses this object. All have applied at least this many messages.
  void let_pass(std::uint64_t applied_by_all) { sources_.have_applied(applied_by_all); }

  // Whether it waits for no rank and has nothing to send.
  bool idle() const { return rounds_.empty() && joined_.empty() && outgoing_.empty(); }

  // Processes a message from above, before any rank of the subtree applies it.
  void pass(const CoordinatorMessage& message) {
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

  // The message that is due to go up, if any.
  std::optional<SubtreeMessage> take(TimePoint now) {
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

  // When to call take() even if nothing was received.
  Deadline next_deadline() const { return next_release_; }

 private:
  [[noreturn]] void violation(int source, const std::string& what) const {
    report_violation(RankSet(source), what, describe_rank_);
  }

  // The common request of some ranks for a name: a hit on the name's slot, or a full request.
  struct Statement {
    RankSet ranks;
    std::uint64_t latest = 0;
    std::uint32_t slot = kNoSlot;
    std::optional<OperationSpec> spec;
    std::map<int, RankPart> parts;  // by rank, where the requests differ

    void add(const RankMessage& message) {
      ranks.add(message.ranks);
      latest = std::max(latest, message.latest);
    }
  };

  // A negotiation of a name in this subtree.
  struct Round {
    TimePoint since{};
    RankSet heard;                      // the ranks that have asked
    std::vector<Statement> statements;  // the part of that which has not gone up yet

    // The statement of ranks that ask alike: the one that there is, or a new one.
    Statement& said_alike(std::uint32_t slot) {
      for (Statement& statement : statements) {
        if (statement.slot == slot) return statement;
      }
      statements.emplace_back().slot = slot;
      return statements.back();
    }
    Statement& said_alike(const OperationSpec& spec) {
      for (Statement& statement : statements) {
        if (statement.spec && is_like(*statement.spec, spec)) return statement;
      }
      statements.emplace_back().spec = spec;
      return statements.back();
    }
  };

  // Requests with different sizes by rank are combined into one with parts, which needs a first dimension.
  static bool can_be_shared(const OperationSpec& spec) {
    return !differs_by_rank(spec.collective) ||
           std::ranges::none_of(spec.tensors, [](const TensorSpec& tensor) { return tensor.shape.empty(); });
  }
  static bool is_like(const OperationSpec& a, const OperationSpec& b) {
    return a.process_set == b.process_set && can_be_shared(b) && agree(a, b);
  }

  void hear(const RankMessage& message, TimePoint now) {
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
  void hear_hit(const RankMessage& message, std::uint32_t slot, TimePoint now) {
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
  void hear_late_hit(const RankMessage& message, std::uint32_t slot, TimePoint now) {
    if (slot >= slots_.size() || slots_[slot].last_name.empty() || message.applied < slots_[slot].last_filled_by)
      return;
    const std::string& name = slots_[slot].last_name;
    enter(name, message.ranks, now);
    settle(name, message.ranks);
  }
  void hear_request(const RankMessage& message, const SharedRequest& request, TimePoint now) {
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
  void hear_join(const RankMessage& message, const SharedRequest& request) {
    release_all();
    joined_.add(message.ranks);
    join_name_ = request.spec.name;
    on_behalf_of(message).requests.push_back(request);
    std::erase_if(rounds_, [this](const auto& entry) { return complete(entry.second); });
  }
  // Whether every rank has asked or joined.
  bool complete(const Round& round) const {
    if (joined_.empty()) return round.heard.count() == subtree_.count();
    return difference(difference(subtree_, joined_), round.heard).empty();
  }
  // Sends the statements up if the whole subtree has asked.
  void settle(const std::string& name, const RankSet& ranks) {
    const auto found = rounds_.find(name);
    Round& round = found->second;
    const bool all = complete(round);
    if (!all && !joined_.intersects(ranks)) return;
    release(round);
    if (all) rounds_.erase(found);
  }
  // The negotiation of the name that these ranks enter: a new one if they have asked in the last.
  Round& enter(const std::string& name, const RankSet& ranks, TimePoint now) {
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

  void release(Round& round) {
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
  void release_all() {
    for (auto& [name, round] : rounds_) release(round);
  }
  // What ranks have sent for it still counts, for this negotiation or the next.
  void end_negotiation(const std::string& name) {
    const auto found = rounds_.find(name);
    if (found == rounds_.end()) return;
    release(found->second);
    rounds_.erase(found);
  }
  // Starts a message for exactly these ranks.
  RankMessage& on_behalf_of(const RankMessage& message) {
    return outgoing_.emplace_back(
        RankMessage{.ranks = message.ranks, .applied = message.applied, .latest = message.latest});
  }
  // Its hits refer to the slots' content after the messages passed so far.
  RankMessage& outgoing(const RankSet& ranks, std::uint64_t latest) {
    if (outgoing_.empty() || outgoing_.back().ranks != ranks || outgoing_.back().applied != passed_) {
      outgoing_.push_back({.ranks = ranks, .applied = passed_});
    }
    outgoing_.back().latest = std::max(outgoing_.back().latest, latest);
    return outgoing_.back();
  }
  void end_join(const RankSet& ranks, std::uint64_t number) {
    sources_.end_join(joined_, ranks, number);
    joined_.remove(ranks);
  }
  // A join that is given up may end for some ranks before others have come to it.
  void end_join_as_told(const Response& response, std::uint64_t number) {
    if (response.kind == Response::Kind::all_joined) return end_join(RankSet(joined_), number);
    if (response.kind != Response::Kind::error || response.spec.name != join_name_) return;
    RankSet ranks;
    for (const int rank : response.ranks) ranks.add(RankSet(rank));
    end_join(ranks, number);
  }
  // A schedule is locked: when it is given up, each rank asks again.
  void forget_asked(std::uint64_t number) {
    locked_by_ = number;
    end_join(RankSet(joined_), number);
    rounds_.clear();
    std::erase_if(outgoing_, [](const RankMessage& message) { return !message.shut_down; });
  }

  const Duration delay_;
  const DescribeRank describe_rank_;
  RankSet subtree_;
  Sources sources_;
  RankSet joined_;
  std::string join_name_;
  NameMap<Round> rounds_;
  Deadline next_release_ = Deadline::max();

  // The content of the cache slots, according to the coordinator's messages.
  struct Slot {
    std::string name;
    std::uint64_t filled_by = 0;
    std::string last_name;  // the previous content
    std::uint64_t last_filled_by = 0;
  };
  std::vector<Slot> slots_;
  std::uint64_t passed_ = 0;     // the number of messages from above
  std::uint64_t locked_by_ = 0;  // the last of them with a schedule

  std::vector<RankMessage> outgoing_;
};

}  // namespace hvd
