#include "core/control/coordinator/negotiations.h"

#include <memory>

#include "core/base/error.h"

namespace hvd {
namespace {

// The most names with pending failures. Without a limit the memory would grow without bound if ranks generate new names
// and wait for a rank that never comes back.
constexpr std::size_t kMaxPendingFailures = 1 << 16;

bool is_scheduled(const NegotiatedName& name, const ScheduleLearner& learner) {
  return name.slot != kNoSlot && learner.has(name.slot);
}

}  // namespace

Negotiations::Negotiations(const Options& options, const Joins& joins, StallInspector& stalls,
                           DescribeRank describe_rank)
    : all_(0, options.size),
      join_scope_(options.join_scope),
      joins_(joins),
      stalls_(stalls),
      describe_rank_(std::move(describe_rank)),
      cache_(options.cache_capacity) {}

NegotiatedName& Negotiations::of(const std::string& name) {
  auto found = names_.find(name);
  if (found == names_.end()) {
    found = names_.try_emplace(name).first;
    found->second.name = &found->first;
  }
  return found->second;
}

// ---- Who has asked

Negotiations::Outcome Negotiations::add_hit(NegotiatedName& name, const RankMessage& message, const AgreementPtr& meant,
                                            TimePoint now) {
  Negotiation& negotiation = open(name, message.ranks, now);
  if (!negotiation.cached) negotiation.cached = meant;
  mark_asked(negotiation, message.ranks, message.latest);
  return update_readiness(negotiation);
}

Negotiations::Outcome Negotiations::add_request(NegotiatedName& name, const RankMessage& message,
                                                const SharedRequest& request, TimePoint now) {
  Negotiation& negotiation = open(name, message.ranks, now);
  collect_requests(negotiation);
  std::string fault = find_fault_in(negotiation, message.ranks, request);
  mark_asked(negotiation, message.ranks, message.latest);
  if (!fault.empty()) return {.fault = std::move(fault)};
  if (!negotiation.draft) negotiation.draft.emplace(all_.count(), request.spec);
  negotiation.draft->add(message.ranks, request);
  return update_readiness(negotiation);
}

Negotiations::Outcome Negotiations::update_readiness(Negotiation& negotiation) const {
  if (negotiation.ready) return {};
  const RankSet absent = difference(joins_.ranks, negotiation.asked);
  std::string need;
  absent.for_each([&](int rank) {
    if (need.empty()) {
      need = find_need(negotiation.agreement(), negotiation.asked, rank, join_scope_, describe_rank_);
    }
  });
  if (!need.empty()) return {.fault = std::move(need)};
  negotiation.ready = negotiation.asked.count() + absent.count() == all_.count();
  return {.ready = negotiation.ready};
}

Negotiation& Negotiations::open(NegotiatedName& name, const RankSet& ranks, TimePoint now) {
  if (name.open) return *name.open;
  ++open_count_;
  if (name.slot != kNoSlot) cache_.hold(name.slot);
  stalls_.started(now);
  return name.open.emplace(Negotiation{.of = name, .since = now, .order = next_order(), .first = ranks.lowest()});
}

void Negotiations::collect_requests(Negotiation& negotiation) const {
  if (!negotiation.cached) return;
  const AgreementPtr cached = std::exchange(negotiation.cached, nullptr);
  negotiation.draft.emplace(all_.count(), cached->request_of(RankSet(negotiation.first)).spec);
  negotiation.draft->add_from(*cached, negotiation.asked);
}

// What is wrong with the request, alone or compared with the other requests of this negotiation.
std::string Negotiations::find_fault_in(const Negotiation& negotiation, const RankSet& ranks,
                                        const SharedRequest& request) const {
  std::string fault = find_fault(request.spec, all_.count(), ranks.lowest(), describe_rank_);
  OperationSpec own = request.spec;
  auto part = request.parts.begin();
  ranks.for_each([&](int rank) {
    if (!fault.empty() || part == request.parts.end()) return;
    put_part(*part++, own);
    fault = find_fault(own, all_.count(), rank, describe_rank_);
  });
  if (!fault.empty() || !negotiation.draft) return fault;
  return find_disagreement(negotiation.draft->first(), negotiation.first, request.spec, ranks.lowest(), describe_rank_);
}

void Negotiations::mark_asked(Negotiation& negotiation, const RankSet& ranks, std::uint64_t applied) const {
  if (joins_.ranks.intersects(ranks)) {
    report_violation(intersection(joins_.ranks, ranks), "submits '" + *negotiation.of.name + "' after a join",
                     describe_rank_);
  }
  if (negotiation.asked.intersects(ranks)) {
    report_violation(intersection(negotiation.asked, ranks), "submits '" + *negotiation.of.name + "' twice",
                     describe_rank_);
  }
  negotiation.asked.add(ranks);
  negotiation.applied = std::max(negotiation.applied, applied);
}

// ---- Cache slots

std::uint32_t Negotiations::slot_for(NegotiatedName& name) {
  if (name.slot != kNoSlot) return name.slot;
  const std::uint32_t slot = cache_.take();
  if (slot == kNoSlot) return slot;
  if (slot >= by_slot_.size()) by_slot_.resize(slot + std::size_t{1});
  if (NegotiatedName* evicted = by_slot_[slot]) {
    evicted->slot = kNoSlot;
    forget_if_idle(*evicted);
  }
  by_slot_[slot] = &name;
  return name.slot = slot;
}

void Negotiations::store(Negotiation& negotiation, std::uint64_t number, std::uint64_t applied_by_all) {
  auto content = std::make_shared<const Agreement>(std::move(*negotiation.draft));
  cache_.store(negotiation.of.slot, std::move(content), number, applied_by_all);
}

// ---- The end of negotiations

void Negotiations::close(Negotiation& negotiation) {
  NegotiatedName& name = negotiation.of;
  --open_count_;
  name.open.reset();
  if (name.slot != kNoSlot) cache_.release(name.slot);
  stalls_.ended();
  forget_if_idle(name);
}

void Negotiations::fail(Negotiation& negotiation, const Status& status) {
  const RankSet late = difference(difference(all_, negotiation.asked), joins_.ranks);
  if (!late.empty()) {
    negotiation.of.failed.add(status, late, next_order());
    limit_failures(negotiation.of);
  }
  close(negotiation);
}

void Negotiations::forget_if_idle(NegotiatedName& name) {
  if (name.open || name.slot != kNoSlot || !name.failed.empty()) return;
  names_.erase(names_.find(*name.name));
}

void Negotiations::drop_before(const RankSet& ranks, std::uint64_t order) {
  std::vector<NegotiatedName*> with_failures;
  for (auto& [text, name] : names_) {
    if (!name.failed.empty()) with_failures.push_back(&name);
  }
  for (NegotiatedName* name : with_failures) {
    name->failed.drop_before(ranks, order);
    forget_if_idle(*name);
  }
}

// The oldest are dropped: a rank that is so late waits until its own operation reaches the stall limit.
void Negotiations::limit_failures(const NegotiatedName& newest) {
  names_by_failure_.emplace_back(*newest.name, newest.failed.newest());
  while (!names_by_failure_.empty()) {
    const auto& [name, order] = names_by_failure_.front();
    const auto found = names_.find(name);
    const bool pending =
        found != names_.end() && !found->second.failed.empty() && found->second.failed.newest() == order;
    if (pending && names_by_failure_.size() <= kMaxPendingFailures) return;
    if (pending) {
      found->second.failed.clear();
      forget_if_idle(found->second);
    }
    names_by_failure_.pop_front();
  }
}

// ---- All at once

std::vector<Negotiation*> Negotiations::open() {
  std::vector<Negotiation*> open;
  for (auto& [text, name] : names_) {
    if (name.open) open.push_back(&*name.open);
  }
  std::sort(open.begin(), open.end(), [](const Negotiation* a, const Negotiation* b) { return a->order < b->order; });
  return open;
}

bool Negotiations::agree_with(const ScheduleLearner& learner) const {
  return std::all_of(names_.begin(), names_.end(), [&](const auto& entry) {
    const NegotiatedName& name = entry.second;
    const bool as_scheduled = !name.open || (name.open->cached && is_scheduled(name, learner));
    // A late submission outside the schedule breaks the lock when it comes.
    return as_scheduled && (name.failed.empty() || !is_scheduled(name, learner));
  });
}

}  // namespace hvd
