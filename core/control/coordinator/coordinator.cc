#include "core/control/coordinator/coordinator.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/control/protocol/request_check.h"
#include "core/operation/made_up_names.h"

namespace hvd {
namespace {

// The most names with pending failures. Without a limit the memory would grow without bound if ranks generate new names
// and wait for a rank that never comes back.
constexpr std::size_t kMaxPendingFailures = 1 << 16;

StallInspector stall_inspector_for(const CoordinatorOptions& options) {
  if (!options.stall_check) return StallInspector(Duration::zero(), Duration::zero());
  return StallInspector(options.stall_warning, options.stall_limit);
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, DescribeRank describe_rank)
    : process_set_(options.process_set),
      all_(0, options.size),
      describe_rank_(std::move(describe_rank)),
      cache_(options.cache_capacity),
      stalls_(stall_inspector_for(options)),
      join_scope_(options.join_scope),
      locks_(options.locks),
      answers_(options.answers) {
  for (const auto& [source, ranks] : options.sources) sources_[source].ranks = ranks;
  for (int rank = 0; options.sources.empty() && rank < options.size; ++rank) sources_[rank].ranks = RankSet(rank);
  outgoing_.number = 1;
}

void Coordinator::receive(int source, const SubtreeMessage& message, TimePoint now) {
  const auto found = sources_.find(source);
  if (found == sources_.end()) {
    throw Internal("a message from rank " + std::to_string(source) + ", which is to send none");
  }
  if (closed_) return;
  auto& [ranks, applied] = found->second;
  if (message.applied_by_all < applied || message.applied_by_all >= outgoing_.number) {
    violation(RankSet(source), "says it has applied message " + std::to_string(message.applied_by_all));
  }
  applied = message.applied_by_all;
  for (const RankMessage& part : message.messages) {
    if (part.ranks.empty() || !ranks.contains(part.ranks)) violation(RankSet(source), "speaks for others");
    receive(part, now);
  }
}

void Coordinator::receive_from_all(const SubtreeMessage& message, TimePoint now) {
  if (closed_) return;
  if (message.applied_by_all >= outgoing_.number) violation(all_, "says it has applied a message to come");
  for (auto& [rank, source] : sources_) source.applied = std::max(source.applied, message.applied_by_all);
  for (const RankMessage& part : message.messages) receive(part, now);
}

void Coordinator::receive(const RankMessage& message, TimePoint now) {
  if (message.latest > message.applied || message.applied >= outgoing_.number) {
    violation(message.ranks, "says it has applied message " + std::to_string(message.applied));
  }
  if (message.shut_down && !leaving_) leaving_ = message.ranks.lowest();
  if (message.applied < locked_by_) return;
  heard_ = now;
  for (const std::uint32_t slot : message.hits) receive_hit(message, slot, now);
  for (const SharedRequest& request : message.requests) receive_request(message, request, now);
}

std::optional<CoordinatorMessage> Coordinator::respond(TimePoint now) {
  if (closed_) return std::nullopt;
  if (now >= stalls_.next_check()) inspect_stalls(now);
  if (leaving_) answer_all_ready();
  answer_ready(now);
  if (locks_ && !outgoing_.entries.empty()) {
    if (stalls_.nothing_waits()) learner_.paused();
    if (can_lock()) lock_schedule();
  }
  if (leaving_) {
    Response response;
    response.kind = Response::Kind::shut_down;
    response.status = Status(StatusCode::shut_down, describe_rank_(*leaving_) + " has shut hvd down");
    response.last_joined = *leaving_;
    outgoing_.entries.push_back({kNoSlot, std::move(response)});
    closed_ = true;
  }
  if (outgoing_.entries.empty() && outgoing_.notices.empty()) return std::nullopt;
  CoordinatorMessage next;
  next.number = outgoing_.number + 1;
  next.entries.reserve(outgoing_.entries.size());  // the next step is probably like this one
  return std::exchange(outgoing_, std::move(next));
}

Deadline Coordinator::next_deadline() const { return closed_ ? Deadline::max() : std::min(stalls_.next_check(), due_); }

// ---- What ranks ask for

void Coordinator::receive_hit(const RankMessage& message, std::uint32_t slot, TimePoint now) {
  const AgreementPtr& meant = cache_.find(slot, message.applied);
  if (!meant) violation(message.ranks, "means cache slot " + std::to_string(slot) + ", which was empty for it");
  if (!meant->asked().contains(message.ranks)) {
    violation(message.ranks, "means cache slot " + std::to_string(slot) + ", which it had no part in");
  }
  if (meant == cache_.current(slot)) {
    Operation& operation = *by_slot_[slot];
    if (operation.failed.empty() && failed_joins_.empty() && (!operation.open || operation.cached == meant)) {
      if (!operation.open) {
        open_negotiation(operation, message.ranks.lowest(), now);
        operation.cached = meant;
      }
      mark_asked(operation, message.ranks, message.latest);
      return settle_negotiation(operation, now);
    }
  }
  receive_request(message, meant->request_of(message.ranks), now);
}

void Coordinator::receive_request(const RankMessage& message, const SharedRequest& request, TimePoint now) {
  const std::string& name = request.request.name;
  if (request.request.process_set != process_set_) {
    violation(message.ranks, "names process set " + std::to_string(request.request.process_set));
  }
  if (request.request.collective == Collective::join) {
    const RankSet joining = claim_failed_joins(name, message.ranks);
    if (!joining.empty()) join(joining, name, now);
    return;
  }
  auto found = operations_.find(name);
  if (found == operations_.end()) {
    found = operations_.try_emplace(name).first;
    found->second.name = &found->first;
  }
  submit(found->second, message, request, now);
}

void Coordinator::submit(Operation& operation, const RankMessage& message, const SharedRequest& request,
                         TimePoint now) {
  if (!operation.failed.empty() || !failed_joins_.empty()) {
    const RankSet free = refuse_outdated(*operation.name, claim_failures(operation, message.ranks));
    if (free.empty()) return forget_if_idle(operation);
    if (free != message.ranks) {
      const RankMessage rest{.ranks = free, .applied = message.applied, .latest = message.latest};
      return submit(operation, rest, request_of(free, message.ranks, request), now);
    }
  }
  if (!operation.open) open_negotiation(operation, message.ranks.lowest(), now);
  collect_requests(operation);
  std::string fault = find_fault_in(operation, message.ranks, request);
  mark_asked(operation, message.ranks, message.latest);
  if (!fault.empty()) return fail_negotiation(operation, Status(StatusCode::mismatch, std::move(fault)));
  if (!operation.draft) operation.draft.emplace(all_.count(), request.request);
  operation.draft->add(message.ranks, request);
  settle_negotiation(operation, now);
}

// What is wrong with the request, alone or compared with the other requests of this negotiation.
std::string Coordinator::find_fault_in(const Operation& operation, const RankSet& ranks,
                                       const SharedRequest& request) const {
  std::string fault = find_fault(request.request, all_.count(), ranks.lowest(), describe_rank_);
  Request own = request.request;
  auto part = request.parts.begin();
  ranks.for_each([&](int rank) {
    if (!fault.empty() || part == request.parts.end()) return;
    put_part(*part++, own);
    fault = find_fault(own, all_.count(), rank, describe_rank_);
  });
  if (!fault.empty() || !operation.draft) return fault;
  return find_disagreement(operation.draft->first(), operation.first, request.request, ranks.lowest(), describe_rank_);
}

void Coordinator::join(const RankSet& ranks, const std::string& name, TimePoint now) {
  if (joined_.intersects(ranks)) violation(intersection(joined_, ranks), "joins twice");
  if (joined_.empty()) stalls_.started(now);
  joined_.add(ranks);
  join_name_ = name;
  learner_.disturbed();
  forgive_failures(ranks, rounds_ + 1);
  for (Operation* operation : open_operations()) settle_negotiation(*operation, now);
  if (joined_.count() < all_.count()) return;
  answer_all_ready();

  Response response;
  response.kind = Response::Kind::all_joined;
  response.request.process_set = process_set_;
  response.request.name = name;
  response.request.collective = Collective::join;
  response.last_joined = ranks.highest();
  outgoing_.entries.push_back({kNoSlot, std::move(response)});
  end_join();
}

void Coordinator::end_join() {
  joined_.clear();
  stalls_.ended();
}

// ---- The life of a negotiation

void Coordinator::open_negotiation(Operation& operation, int first, TimePoint now) {
  ++open_negotiations_;
  operation.open = true;
  operation.ready = false;
  operation.since = now;
  operation.order = ++rounds_;
  operation.first = first;
  operation.applied = 0;
  operation.asked.clear();
  if (operation.slot != kNoSlot) cache_.hold(operation.slot);
  stalls_.started(now);
}

// Converts hits to full requests, for a negotiation that differs from the last one.
void Coordinator::collect_requests(Operation& operation) {
  if (!operation.cached) return;
  const AgreementPtr cached = std::exchange(operation.cached, nullptr);
  operation.draft.emplace(all_.count(), cached->request_of(RankSet(operation.first)).request);
  operation.draft->add_from(*cached, operation.asked);
}

void Coordinator::mark_asked(Operation& operation, const RankSet& ranks, std::uint64_t applied) {
  if (joined_.intersects(ranks)) {
    violation(intersection(joined_, ranks), "submits '" + *operation.name + "' after a join");
  }
  if (operation.asked.intersects(ranks)) {
    violation(intersection(operation.asked, ranks), "submits '" + *operation.name + "' twice");
  }
  operation.asked.add(ranks);
  operation.applied = std::max(operation.applied, applied);
}

// Ends the negotiation if nothing is missing, or if what is missing will never come.
void Coordinator::settle_negotiation(Operation& operation, TimePoint now) {
  if (operation.ready) return;
  if (joined_.empty()) {
    if (operation.asked.count() == all_.count()) make_ready(operation, now);
    return;
  }
  const RankSet absent = difference(joined_, operation.asked);
  std::string need;
  absent.for_each([&](int rank) {
    if (need.empty()) need = find_need(agreement_on(operation), operation.asked, rank, join_scope_, describe_rank_);
  });
  if (!need.empty()) return fail_negotiation(operation, Status(StatusCode::mismatch, std::move(need)));
  if (operation.asked.count() + absent.count() == all_.count()) make_ready(operation, now);
}

void Coordinator::make_ready(Operation& operation, TimePoint now) {
  operation.ready = true;
  ready_.push_back(&operation);
  const Request& request = agreement_on(operation).first();
  waiting_.push_back({.priority = request.priority, .bytes = bytes_of(request), .since = now});
  due_ = TimePoint::min();
}

void Coordinator::answer_ready(TimePoint now) {
  if (ready_.empty()) return;
  due_ = answers_.due(waiting_, open_negotiations_ > ready_.size());
  if (now < due_) return;
  const std::vector<std::size_t> chosen = answers_.choose(waiting_);
  if (chosen.size() == ready_.size() && std::ranges::is_sorted(chosen)) return answer_all_ready();
  for (const std::size_t i : chosen) execute_negotiated(*std::exchange(ready_[i], nullptr));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i] == nullptr) continue;
    ready_[kept] = ready_[i];
    waiting_[kept++] = waiting_[i];
  }
  ready_.resize(kept);
  waiting_.resize(kept);
  due_ = kept > 0 ? TimePoint::min() : Deadline::max();
}

void Coordinator::answer_all_ready() {
  for (Operation* operation : ready_) execute_negotiated(*operation);
  forget_ready();
}

void Coordinator::forget_ready() {
  ready_.clear();
  waiting_.clear();
  due_ = Deadline::max();
}

// All ranks have asked for a slot's content: an operation without the joined ranks is answered in full each time.
void Coordinator::execute_negotiated(Operation& operation) {
  const bool complete = operation.asked.count() == all_.count();
  if (!complete) collect_requests(operation);
  if (operation.cached) {
    outgoing_.entries.push_back({operation.slot, std::nullopt});
    learner_.executed(operation.slot, outgoing_.number, operation.applied);
    return close_negotiation(operation);
  }
  Response response = operation.draft->response();
  const std::string overflow = find_overflow(response);
  if (!overflow.empty()) {
    const std::string text = operation_text(response.request.collective, response.request.name);
    return fail_negotiation(operation, Status(StatusCode::mismatch, text + ": " + overflow));
  }
  // Responses that do not repeat would only evict those that do; and small long-lived allocations between large ones
  // make the heap of a program with changing names grow.
  response.slot = complete && !is_counted(*operation.name) ? slot_for(operation) : kNoSlot;
  if (response.slot == kNoSlot || cache_.current(response.slot)) learner_.disturbed();
  if (response.slot != kNoSlot) {
    learner_.executed(response.slot, outgoing_.number, operation.applied);
    auto content = std::make_shared<const Agreement>(std::move(*operation.draft));
    cache_.store(response.slot, std::move(content), outgoing_.number, applied_by_all());
  }
  outgoing_.entries.push_back({kNoSlot, std::move(response)});
  close_negotiation(operation);
}

void Coordinator::fail_negotiation(Operation& operation, const Status& status) {
  answer_error(*operation.name, status, operation.asked);
  const RankSet owing = difference(difference(all_, operation.asked), joined_);
  if (!owing.empty()) {
    operation.failed.add(status, owing, ++rounds_);
    limit_failures(operation);
  }
  close_negotiation(operation);
}

void Coordinator::close_negotiation(Operation& operation) {
  --open_negotiations_;
  operation.open = false;
  operation.cached.reset();
  operation.draft.reset();
  if (operation.slot != kNoSlot) cache_.release(operation.slot);
  stalls_.ended();
  forget_if_idle(operation);
}

void Coordinator::forget_if_idle(Operation& operation) {
  if (operation.open || operation.slot != kNoSlot || !operation.failed.empty()) return;
  operations_.erase(operations_.find(*operation.name));
}

// Ranks that have joined continue as if they had not. Requires that no operation is open.
void Coordinator::fail_join(const Status& status) {
  answer_all_ready();
  answer_error(join_name_, status, joined_);
  failed_joins_.add(status, difference(all_, joined_), ++rounds_);
  end_join();
}

void Coordinator::answer_error(const std::string& name, const Status& status, const RankSet& ranks) {
  Response response;
  response.kind = Response::Kind::error;
  response.request.process_set = process_set_;
  response.request.name = name;
  response.status = status;
  response.ranks = ranks.to_vector();
  learner_.disturbed();
  outgoing_.entries.push_back({kNoSlot, std::move(response)});
}

// ---- Pending failures

// Answers each of the ranks with its oldest pending failure. Returns those that have none.
RankSet Coordinator::claim_failures(Operation& operation, const RankSet& ranks) {
  RankSet free = ranks;
  for (const PendingFailures::Claim& claim : operation.failed.pay(ranks)) {
    answer_error(*operation.name, claim.status, claim.ranks);
    free.remove(claim.ranks);
  }
  return free;
}

// Refuses unnamed operations of ranks that have not come to a join that was given up. Returns the others.
RankSet Coordinator::refuse_outdated(const std::string& name, const RankSet& ranks) {
  RankSet current = ranks;
  if (!is_made_up(name)) return current;
  for (const PendingFailures::Claim& claim : failed_joins_.claims(ranks)) {
    answer_error(name, claim.status, claim.ranks);
    current.remove(claim.ranks);
  }
  return current;
}

// Returns the ranks whose join is not owed to an earlier one.
RankSet Coordinator::claim_failed_joins(const std::string& name, const RankSet& ranks) {
  RankSet free = ranks;
  for (const PendingFailures::Claim& claim : failed_joins_.pay(ranks)) {
    forgive_failures(claim.ranks, claim.order);
    answer_error(name, claim.status, claim.ranks);
    free.remove(claim.ranks);
  }
  return free;
}

// Drops what failed before the join that these ranks have come to; they will not ask for it.
void Coordinator::forgive_failures(const RankSet& ranks, std::uint64_t order) {
  std::vector<Operation*> indebted;
  for (auto& [name, operation] : operations_) {
    if (!operation.failed.empty()) indebted.push_back(&operation);
  }
  for (Operation* operation : indebted) {
    operation->failed.forgive(ranks, order);
    forget_if_idle(*operation);
  }
}

// The oldest are dropped: a rank that is so late waits until its own operation reaches the stall limit.
void Coordinator::limit_failures(const Operation& newest) {
  indebted_.emplace_back(*newest.name, newest.failed.newest());
  while (!indebted_.empty()) {
    const auto& [name, order] = indebted_.front();
    const auto found = operations_.find(name);
    const bool owed =
        found != operations_.end() && !found->second.failed.empty() && found->second.failed.newest() == order;
    if (owed && indebted_.size() <= kMaxPendingFailures) return;
    if (owed) {
      found->second.failed.clear();
      forget_if_idle(found->second);
    }
    indebted_.pop_front();
  }
}

// ---- The schedule lock

bool Coordinator::can_lock() const {
  if (!learner_.has_schedule() || leaving_ || !joined_.empty()) return false;
  return std::all_of(operations_.begin(), operations_.end(), [this](const auto& entry) {
    const Operation& operation = entry.second;
    const bool as_scheduled = !operation.open || (operation.cached && is_scheduled(operation));
    // An owed submission outside the schedule breaks the lock when it comes.
    return as_scheduled && (operation.failed.empty() || !is_scheduled(operation));
  });
}

bool Coordinator::is_scheduled(const Operation& operation) const {
  return operation.slot != kNoSlot && learner_.has(operation.slot);
}

void Coordinator::lock_schedule() {
  Response response;
  response.kind = Response::Kind::lock;
  response.schedule = learner_.schedule();
  outgoing_.entries.push_back({kNoSlot, std::move(response)});
  locked_by_ = outgoing_.number;
  for (Operation* operation : open_operations()) close_negotiation(*operation);
  forget_ready();
  learner_.disturbed();
}

void Coordinator::unlock(std::uint64_t steps) { learner_.given_up(steps); }

// ---- Knobs

void Coordinator::tune(const Knobs& knobs) {
  outgoing_.knobs = knobs;
  answers_ = {.coalescing = std::chrono::microseconds(knobs.coalescing_us),
              .bucket_bytes = knobs.fusion_threshold_bytes};
}

// ---- Cache slots

std::uint32_t Coordinator::slot_for(Operation& operation) {
  if (operation.slot != kNoSlot) return operation.slot;
  const std::uint32_t slot = cache_.take();
  if (slot == kNoSlot) return slot;
  if (slot >= by_slot_.size()) by_slot_.resize(slot + std::size_t{1});
  if (Operation* evicted = by_slot_[slot]) {
    evicted->slot = kNoSlot;
    forget_if_idle(*evicted);
  }
  by_slot_[slot] = &operation;
  return operation.slot = slot;
}

// A rank that has joined has no hit in flight, and sends none before it has applied everything up to the join's end.
std::uint64_t Coordinator::applied_by_all() const {
  std::uint64_t lowest = outgoing_.number - 1;
  for (const auto& [rank, source] : sources_) {
    if (!joined_.contains(source.ranks)) lowest = std::min(lowest, source.applied);
  }
  return lowest;
}

// ---- Stalls

void Coordinator::inspect_stalls(TimePoint now) {
  const std::vector<Waiter> waiters = find_waiters();
  std::vector<WaitingOperation> waiting;
  for (const Waiter& waiter : waiters) waiting.push_back(describe(waiter));
  StallInspector::Findings findings = stalls_.inspect(waiting, now, describe_rank_);
  if (!findings.notice.empty()) outgoing_.notices.push_back(std::move(findings.notice));
  for (const std::size_t i : findings.expired) {
    const Status status = stall_status(waiting[i], now, describe_rank_);
    waiters[i].operation ? fail_negotiation(*waiters[i].operation, status) : fail_join(status);
  }
}

// Oldest first. A join has waited since the last request of any rank: until then the others had work. While an
// operation is open, it determines which ranks are missing.
std::vector<Coordinator::Waiter> Coordinator::find_waiters() {
  std::vector<Waiter> waiters;
  for (Operation* operation : open_operations()) {
    if (!operation->ready) waiters.push_back({operation, operation->since});
  }
  if (waiters.empty() && !joined_.empty()) waiters.push_back({nullptr, heard_});
  std::stable_sort(waiters.begin(), waiters.end(), [](const Waiter& a, const Waiter& b) { return a.since < b.since; });
  return waiters;
}

WaitingOperation Coordinator::describe(const Waiter& waiter) const {
  const Operation* operation = waiter.operation;
  const RankSet missing =
      operation ? difference(difference(all_, joined_), operation->asked) : difference(all_, joined_);
  return {.name = operation ? *operation->name : join_name_,
          .collective = operation ? agreement_on(*operation).first().collective : Collective::join,
          .since = waiter.since,
          .missing = missing.to_vector()};
}

// Oldest first, so that decisions for many at once have a defined order.
std::vector<Coordinator::Operation*> Coordinator::open_operations() {
  std::vector<Operation*> open;
  for (auto& [name, operation] : operations_) {
    if (operation.open) open.push_back(&operation);
  }
  std::sort(open.begin(), open.end(), [](const Operation* a, const Operation* b) { return a->order < b->order; });
  return open;
}

const Agreement& Coordinator::agreement_on(const Operation& operation) const {
  return operation.cached ? *operation.cached : *operation.draft;
}

void Coordinator::violation(const RankSet& ranks, const std::string& what) const {
  throw Internal(describe_rank_(ranks.lowest()) + " breaks the protocol: it " + what);
}

}  // namespace hvd
