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
  // `sources`: the senders of messages to this node, itself included, with the ranks for which each sends.
  RequestAggregator(const std::map<int, RankSet>& sources, Duration delay, DescribeRank describe_rank)
      : delay_(delay), describe_rank_(std::move(describe_rank)), sources_(sources) {
    for (const auto& [source, ranks] : sources) subtree_.add(ranks);
  }

  // Throws Internal, naming the source, if it sends for other ranks, or claims to have applied too many messages.
  void receive(int source, const SubtreeMessage& message, TimePoint now) {
    const auto violation = [&](const std::string& what) { report_violation(RankSet(source), what, describe_rank_); };
    Sources::Source* const found = sources_.find(source);
    if (found == nullptr) violation("sends messages to a rank that is not its parent");
    std::uint64_t applied = message.applied_by_all;
    for (const RankMessage& part : message.messages) {
      if (part.ranks.empty() || !found->ranks.contains(part.ranks)) violation("speaks for others");
      if (part.latest > part.applied) violation("contradicts itself about the messages that it has applied");
      applied = std::max(applied, part.applied);
    }
    if (applied > last_number_) {
      violation("claims to have applied message " + std::to_string(applied) + ", but only " +
                std::to_string(last_number_) + " were sent");
    }
    // A rank that leaves while its join ends may report a lower number than end_join() has assumed.
    found->applied = std::max(found->applied, message.applied_by_all);
    for (const RankMessage& part : message.messages) add(part, now);
  }

  // All sources sent one combined message, which bypasses this object. All have applied at least this many messages.
  void note_combined(std::uint64_t applied_by_all) { sources_.have_applied(applied_by_all); }

  // Whether it waits for no rank and has nothing to send.
  bool idle() const { return open_.empty() && joined_.empty() && outgoing_.empty(); }

  // Processes a message from above, before any rank of the subtree applies it.
  void observe(const ResponseList& message) {
    for (const auto& entry : message.entries) {
      if (!entry.response) {
        if (entry.cached_slot < slots_.size()) end_negotiation(slots_[entry.cached_slot].name);
        continue;
      }
      const Response& response = *entry.response;
      apply_join_end(response, message.number);
      if (response.kind == Response::Kind::lock) {
        forget_asked(message.number);
      } else {
        end_negotiation(response.spec.name);
      }
      if (response.kind != Response::Kind::execute || response.slot == kNoSlot) continue;
      if (response.slot >= slots_.size()) slots_.resize(response.slot + std::size_t{1});
      Slot& slot = slots_[response.slot];
      const auto evicted = open_.find(slot.name);
      if (evicted != open_.end()) release(evicted->second);  // their hits mean the old content
      slot = {response.spec.name, message.number, std::move(slot.name), slot.filled_by};
    }
    last_number_ = message.number;
  }

  // The message that is due to go up, if any.
  std::optional<SubtreeMessage> take(TimePoint now) {
    if (now >= next_release_) {
      next_release_ = Deadline::max();
      for (auto& [name, negotiation] : open_) {
        if (negotiation.unsent.empty()) continue;
        if (now >= negotiation.since + delay_) {
          release(negotiation);
        } else {
          next_release_ = std::min(next_release_, negotiation.since + delay_);
        }
      }
    }
    if (outgoing_.empty()) return std::nullopt;
    for (RankMessage& message : outgoing_) std::sort(message.hits.begin(), message.hits.end());
    return SubtreeMessage{.applied_by_all = sources_.applied_by_all(last_number_, joined_),
                          .messages = std::exchange(outgoing_, {})};
  }

  // When to call take() even if nothing was received.
  Deadline next_deadline() const { return next_release_; }

 private:
  // The common request of some ranks for a name: a hit on the name's slot, or a full request.
  struct MergedRequest {
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
  struct SubtreeNegotiation {
    TimePoint since{};
    RankSet asked;                      // the ranks that have asked
    std::vector<MergedRequest> unsent;  // their requests that have not gone up yet

    // The unsent request that this one can be merged with, or a new one.
    MergedRequest& matching(std::uint32_t slot) {
      for (MergedRequest& merged : unsent) {
        if (merged.slot == slot) return merged;
      }
      unsent.emplace_back().slot = slot;
      return unsent.back();
    }
    MergedRequest& matching(const OperationSpec& spec) {
      for (MergedRequest& merged : unsent) {
        if (merged.spec && is_like(*merged.spec, spec)) return merged;
      }
      unsent.emplace_back().spec = spec;
      return unsent.back();
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

  void add(const RankMessage& message, TimePoint now) {
    if (message.shut_down) {
      release_all();
      message_for(message).shut_down = true;
    }
    if (message.applied < locked_by_) return;
    for (const std::uint32_t slot : message.hits) add_hit(message, slot, now);
    for (const SharedRequest& request : message.requests) {
      if (request.spec.collective == Collective::join) {
        add_join(message, request);
      } else {
        add_request(message, request, now);
      }
    }
  }
  void add_hit(const RankMessage& message, std::uint32_t slot, TimePoint now) {
    if (slot >= slots_.size() || slots_[slot].name.empty() || message.applied < slots_[slot].filled_by) {
      // It means the slot's earlier content, or is invalid.
      message_for(message).hits.push_back(slot);
      return add_late_hit(message, slot, now);
    }
    const std::string& name = slots_[slot].name;
    open_for(name, message.ranks, now).matching(slot).add(message);
    release_if_complete(name, message.ranks);
  }
  // The hit has gone up; the negotiation of the name that it meant need not wait for these ranks.
  void add_late_hit(const RankMessage& message, std::uint32_t slot, TimePoint now) {
    if (slot >= slots_.size() || slots_[slot].last_name.empty() || message.applied < slots_[slot].last_filled_by)
      return;
    const std::string& name = slots_[slot].last_name;
    open_for(name, message.ranks, now);
    release_if_complete(name, message.ranks);
  }
  void add_request(const RankMessage& message, const SharedRequest& request, TimePoint now) {
    const std::string& name = request.spec.name;
    MergedRequest& merged = open_for(name, message.ranks, now).matching(request.spec);
    if (differs_by_rank(request.spec.collective) && can_be_shared(request.spec)) {
      auto part = request.parts.begin();
      message.ranks.for_each(
          [&](int rank) { merged.parts.emplace(rank, part != request.parts.end() ? *part++ : part_of(request.spec)); });
    }
    merged.add(message);
    release_if_complete(name, message.ranks);
  }
  // A join comes after everything that the ranks have asked for.
  void add_join(const RankMessage& message, const SharedRequest& request) {
    release_all();
    joined_.add(message.ranks);
    join_name_ = request.spec.name;
    message_for(message).requests.push_back(request);
    std::erase_if(open_, [this](const auto& entry) { return complete(entry.second); });
  }
  // Whether every rank has asked or joined.
  bool complete(const SubtreeNegotiation& negotiation) const {
    if (joined_.empty()) return negotiation.asked.count() == subtree_.count();
    return difference(difference(subtree_, joined_), negotiation.asked).empty();
  }
  // Sends up what is unsent if the whole subtree has asked.
  void release_if_complete(const std::string& name, const RankSet& ranks) {
    const auto found = open_.find(name);
    SubtreeNegotiation& negotiation = found->second;
    const bool all = complete(negotiation);
    if (!all && !joined_.intersects(ranks)) return;
    release(negotiation);
    if (all) open_.erase(found);
  }
  // The negotiation of the name that these ranks take part in: a new one if they have asked in the last.
  SubtreeNegotiation& open_for(const std::string& name, const RankSet& ranks, TimePoint now) {
    SubtreeNegotiation& negotiation = open_[name];
    if (negotiation.asked.intersects(ranks)) {
      release(negotiation);
      negotiation.asked.clear();
    }
    if (negotiation.asked.empty()) negotiation.since = now;
    negotiation.asked.add(ranks);
    next_release_ = std::min(next_release_, negotiation.since + delay_);
    return negotiation;
  }

  void release(SubtreeNegotiation& negotiation) {
    for (MergedRequest& merged : negotiation.unsent) {
      RankMessage& message = outgoing(merged.ranks, merged.latest);
      if (!merged.spec) {
        message.hits.push_back(merged.slot);
        continue;
      }
      SharedRequest shared(std::move(*merged.spec));
      if (merged.parts.size() == 1) put_part(merged.parts.begin()->second, shared.spec);
      if (merged.parts.size() > 1) {
        for (auto& [rank, part] : merged.parts) shared.parts.push_back(std::move(part));
        put_part(shared.parts.front(), shared.spec);
      }
      message.requests.push_back(std::move(shared));
    }
    negotiation.unsent.clear();
  }
  void release_all() {
    for (auto& [name, negotiation] : open_) release(negotiation);
  }
  // What ranks have sent for it still counts, for this negotiation or the next.
  void end_negotiation(const std::string& name) {
    const auto found = open_.find(name);
    if (found == open_.end()) return;
    release(found->second);
    open_.erase(found);
  }
  // Starts a message for exactly these ranks.
  RankMessage& message_for(const RankMessage& message) {
    return outgoing_.emplace_back(
        RankMessage{.ranks = message.ranks, .applied = message.applied, .latest = message.latest});
  }
  // Its hits refer to the slots' content after the messages observed so far.
  RankMessage& outgoing(const RankSet& ranks, std::uint64_t latest) {
    if (outgoing_.empty() || outgoing_.back().ranks != ranks || outgoing_.back().applied != last_number_) {
      outgoing_.push_back({.ranks = ranks, .applied = last_number_});
    }
    outgoing_.back().latest = std::max(outgoing_.back().latest, latest);
    return outgoing_.back();
  }
  void end_join(const RankSet& ranks, std::uint64_t number) {
    sources_.end_join(joined_, ranks, number);
    joined_.remove(ranks);
  }
  // A join that is given up may end for some ranks before others have come to it.
  void apply_join_end(const Response& response, std::uint64_t number) {
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
    open_.clear();
    std::erase_if(outgoing_, [](const RankMessage& message) { return !message.shut_down; });
  }

  const Duration delay_;
  const DescribeRank describe_rank_;
  RankSet subtree_;
  Sources sources_;
  RankSet joined_;
  std::string join_name_;
  NameMap<SubtreeNegotiation> open_;
  Deadline next_release_ = Deadline::max();

  // The content of the cache slots, according to the coordinator's messages.
  struct Slot {
    std::string name;
    std::uint64_t filled_by = 0;
    std::string last_name;  // the previous content
    std::uint64_t last_filled_by = 0;
  };
  std::vector<Slot> slots_;
  std::uint64_t last_number_ = 0;  // the number of messages from above
  std::uint64_t locked_by_ = 0;    // the last of them with a schedule

  std::vector<RankMessage> outgoing_;
};

}  // namespace hvd
