#include "core/negotiation/coordinator.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/negotiation/request_check.h"

namespace hvd {
namespace {

StallInspector stall_inspector_for(const CoordinatorOptions& options) {
  if (!options.stall_check) return StallInspector(Duration::zero(), Duration::zero());
  return StallInspector(options.stall_warning, options.stall_limit);
}

std::size_t index(int position) { return static_cast<std::size_t>(position); }

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, DescribeRank describe_rank)
    : size_(options.size),
      describe_rank_(std::move(describe_rank)),
      cache_(options.cache_capacity),
      stalls_(stall_inspector_for(options)),
      locks_(options.locks),
      applied_(index(options.size)) {
  Group& global = groups_[options.process_set];
  global.set.id = options.process_set;
  global.set.ranks.resize(index(size_));
  std::iota(global.set.ranks.begin(), global.set.ranks.end(), 0);
  global.joined.resize(index(size_));
  outgoing_.number = 1;
}

void Coordinator::receive(int rank, const RankMessage& message, TimePoint now) {
  if (rank < 0 || rank >= size_)
    throw Internal("a message from rank " + std::to_string(rank) + ", which does not exist");
  if (closed_) return;
  std::uint64_t& applied = applied_[index(rank)];
  if (message.applied < applied || message.applied >= outgoing_.number) {
    violation(rank, "says it has applied message " + std::to_string(message.applied));
  }
  applied = message.applied;
  if (message.shut_down && !leaving_) leaving_ = rank;
  if (applied < locked_by_) return;
  for (const std::uint32_t slot : message.hits) receive_hit(rank, slot, applied, now);
  for (const Request& request : message.requests) receive_request(rank, request, now);
}

std::optional<CoordinatorMessage> Coordinator::respond(TimePoint now) {
  if (closed_) return std::nullopt;
  if (now >= stalls_.next_check()) inspect_stalls(now);
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
  next.entries.reserve(outgoing_.entries.size());  // the next step is likely like this one
  return std::exchange(outgoing_, std::move(next));
}

Deadline Coordinator::next_deadline() const { return closed_ ? Deadline::max() : stalls_.next_check(); }

// ---- What ranks ask for

void Coordinator::receive_hit(int rank, std::uint32_t slot, std::uint64_t applied, TimePoint now) {
  const AgreementPtr& meant = cache_.find(slot, applied);
  if (!meant) violation(rank, "means cache slot " + std::to_string(slot) + ", which was empty for it");
  Group& group = group_of(rank, meant->first());
  group.heard = now;
  const int position = position_of(rank, group);
  if (!meant->has(position)) violation(rank, "means cache slot " + std::to_string(slot) + ", which it had no part in");

  if (meant == cache_.current(slot)) {
    Operation& operation = *by_slot_[slot];
    if (operation.failed.empty() && (!operation.open || operation.cached == meant)) {
      if (!operation.open) {
        open_round(operation, position, now);
        operation.cached = meant;
      }
      return enter_round(operation, position);
    }
  }
  receive_request(rank, meant->request_of(position), now);
}

void Coordinator::receive_request(int rank, const Request& request, TimePoint now) {
  Group& group = group_of(rank, request);
  group.heard = now;
  if (request.collective == Collective::join) return join(group, rank, request, now);
  auto found = operations_.find(key_of(request));
  if (found == operations_.end()) {
    found = operations_.try_emplace(OperationKey(request)).first;
    found->second.key = &found->first;
    found->second.group = &group;
  }
  submit(found->second, position_of(rank, group), request, now);
}

void Coordinator::submit(Operation& operation, int position, const Request& request, TimePoint now) {
  if (pay_debt(operation, position)) return;
  if (!operation.open) open_round(operation, position, now);
  collect_requests(operation);
  const Group& group = *operation.group;
  const int rank = rank_at(operation, position);
  std::string fault = find_fault(request, group.set, rank, describe_rank_);
  if (fault.empty() && operation.draft) {
    fault =
        find_disagreement(operation.draft->first(), rank_at(operation, operation.first), request, rank, describe_rank_);
  }
  if (fault.empty()) {
    if (!operation.draft) operation.draft.emplace(group.set.size(), request);
    operation.draft->add(position, request);
    enter_round(operation, position);
  } else {
    mark_asked(operation, position);
    fail_round(operation, Status(StatusCode::mismatch, std::move(fault)));
  }
}

void Coordinator::join(Group& group, int rank, const Request& request, TimePoint now) {
  const int position = position_of(rank, group);
  if (group.joined[index(position)]) violation(rank, "joins twice");
  group.joined[index(position)] = true;
  group.join_name = request.name;
  if (++group.joined_count == 1) stalls_.started(now);
  learner_.disturbed();
  forgive_debts(group, position);
  for (Operation* operation : open_operations(&group)) {
    if (operation->asked[index(position)]) continue;
    --operation->missing;
    settle_round(*operation);
  }
  if (group.joined_count < group.set.size()) return;

  Response response;
  response.kind = Response::Kind::all_joined;
  response.request.process_set = group.set.id;
  response.request.name = request.name;
  response.request.collective = Collective::join;
  response.last_joined = rank;
  outgoing_.entries.push_back({kNoSlot, std::move(response)});
  end_join(group);
}

void Coordinator::end_join(Group& group) {
  group.joined.assign(group.joined.size(), false);
  group.joined_count = 0;
  stalls_.ended();
}

// ---- The life of a round

void Coordinator::open_round(Operation& operation, int position, TimePoint now) {
  operation.open = true;
  operation.since = now;
  operation.order = ++rounds_;
  operation.first = position;
  operation.applied = 0;
  operation.missing = operation.group->set.size() - operation.group->joined_count;
  operation.asked.assign(operation.group->joined.size(), false);
  if (operation.slot != kNoSlot) cache_.hold(operation.slot);
  stalls_.started(now);
}

// From hits alone to full requests: a round that is not like the last one.
void Coordinator::collect_requests(Operation& operation) {
  if (!operation.cached) return;
  const AgreementPtr cached = std::exchange(operation.cached, nullptr);
  operation.draft.emplace(operation.group->set.size(), cached->request_of(operation.first));
  for (int position = 0; position < operation.group->set.size(); ++position) {
    if (operation.asked[index(position)]) operation.draft->add_from(*cached, position);
  }
}

void Coordinator::mark_asked(Operation& operation, int position) {
  const int rank = rank_at(operation, position);
  if (operation.group->joined[index(position)]) violation(rank, "submits '" + operation.key->name + "' after a join");
  if (operation.asked[index(position)]) violation(rank, "submits '" + operation.key->name + "' twice");
  operation.asked[index(position)] = true;
  --operation.missing;
  operation.applied = std::max(operation.applied, applied_[index(rank)]);
}

void Coordinator::enter_round(Operation& operation, int position) {
  mark_asked(operation, position);
  settle_round(operation);
}

// Ends the round if nothing is missing, or if what is missing will never come.
void Coordinator::settle_round(Operation& operation) {
  const Group& group = *operation.group;
  for (int position = 0; group.joined_count > 0 && position < group.set.size(); ++position) {
    if (!group.joined[index(position)] || operation.asked[index(position)]) continue;
    const Agreement& agreement = operation.cached ? *operation.cached : *operation.draft;
    std::string need = find_need(agreement, operation.asked, group.set, position, describe_rank_);
    if (!need.empty()) return fail_round(operation, Status(StatusCode::mismatch, std::move(need)));
  }
  if (operation.missing == 0) execute_round(operation);
}

// What a slot holds, all ranks have asked for: a round without those that have joined is answered whole each time.
void Coordinator::execute_round(Operation& operation) {
  const std::vector<bool>& asked = operation.asked;
  const bool complete =
      operation.group->joined_count == 0 || std::find(asked.begin(), asked.end(), false) == asked.end();
  if (!complete) collect_requests(operation);
  if (operation.cached) {
    outgoing_.entries.push_back({operation.slot, std::nullopt});
    learner_.executed(operation.slot, outgoing_.number, operation.applied);
    return close_round(operation);
  }
  Response response = operation.draft->response();
  const std::string overflow = find_overflow(response);
  if (!overflow.empty()) {
    const std::string text = operation_text(response.request.collective, response.request.name);
    return fail_round(operation, Status(StatusCode::mismatch, text + ": " + overflow));
  }
  response.slot = complete ? slot_for(operation) : kNoSlot;
  if (response.slot == kNoSlot || cache_.current(response.slot)) learner_.disturbed();
  if (response.slot != kNoSlot) {
    learner_.executed(response.slot, outgoing_.number, operation.applied);
    auto content = std::make_shared<const Agreement>(std::move(*operation.draft));
    cache_.store(response.slot, std::move(content), outgoing_.number, applied_by_all(*operation.group));
  }
  outgoing_.entries.push_back({kNoSlot, std::move(response)});
  close_round(operation);
}

void Coordinator::fail_round(Operation& operation, Status status) {
  const Group& group = *operation.group;
  FailedRound failed{.status = std::move(status), .owing = std::vector<bool>(group.joined.size()), .owing_count = 0};
  std::vector<std::int32_t> answered;
  for (int position = 0; position < group.set.size(); ++position) {
    if (operation.asked[index(position)]) {
      answered.push_back(rank_at(operation, position));
    } else if (!group.joined[index(position)]) {
      failed.owing[index(position)] = true;
      ++failed.owing_count;
    }
  }
  answer_error(*operation.key, failed.status, std::move(answered));
  if (failed.owing_count > 0) operation.failed.push_back(std::move(failed));
  close_round(operation);
}

void Coordinator::close_round(Operation& operation) {
  operation.open = false;
  operation.cached.reset();
  operation.draft.reset();
  if (operation.slot != kNoSlot) cache_.release(operation.slot);
  stalls_.ended();
  forget_if_idle(operation);
}

void Coordinator::forget_if_idle(Operation& operation) {
  if (operation.open || operation.slot != kNoSlot || !operation.failed.empty()) return;
  operations_.erase(operations_.find(*operation.key));
}

// Ranks that have joined go on as if they had not, and who joins later waits for them anew. No operation is open.
void Coordinator::fail_join(Group& group, const Status& status) {
  std::vector<std::int32_t> answered;
  for (std::size_t position = 0; position < group.joined.size(); ++position) {
    if (group.joined[position]) answered.push_back(group.set.ranks[position]);
  }
  answer_error({group.set.id, group.join_name}, status, std::move(answered));
  end_join(group);
}

void Coordinator::answer_error(OperationKeyView key, const Status& status, std::vector<std::int32_t> ranks) {
  Response response;
  response.kind = Response::Kind::error;
  response.request.process_set = key.process_set;
  response.request.name = key.name;
  response.status = status;
  response.ranks = std::move(ranks);
  learner_.disturbed();
  outgoing_.entries.push_back({kNoSlot, std::move(response)});
}

// ---- Debts to rounds that have failed

bool Coordinator::pay_debt(Operation& operation, int position) {
  auto& failed = operation.failed;
  const auto oldest = std::find_if(failed.begin(), failed.end(),
                                   [&](const FailedRound& round) { return round.owing[index(position)]; });
  if (oldest == failed.end()) return false;
  answer_error(*operation.key, oldest->status, {rank_at(operation, position)});
  oldest->owing[index(position)] = false;
  if (--oldest->owing_count == 0) failed.erase(oldest);
  forget_if_idle(operation);
  return true;
}

void Coordinator::forgive_debts(Group& group, int position) {
  std::vector<Operation*> indebted;
  for (auto& [key, operation] : operations_) {
    if (operation.group == &group && !operation.failed.empty()) indebted.push_back(&operation);
  }
  for (Operation* operation : indebted) {
    for (FailedRound& round : operation->failed) {
      if (!round.owing[index(position)]) continue;
      round.owing[index(position)] = false;
      --round.owing_count;
    }
    std::erase_if(operation->failed, [](const FailedRound& round) { return round.owing_count == 0; });
    forget_if_idle(*operation);
  }
}

// ---- The schedule lock

bool Coordinator::can_lock() const {
  if (!learner_.has_schedule() || leaving_) return false;
  for (const auto& [id, group] : groups_) {
    if (group.joined_count > 0) return false;
  }
  return std::all_of(operations_.begin(), operations_.end(), [this](const auto& entry) {
    const Operation& operation = entry.second;
    const bool as_scheduled = !operation.open || (operation.cached && learner_.has(operation.slot));
    return as_scheduled && operation.failed.empty();
  });
}

void Coordinator::lock_schedule() {
  Response response;
  response.kind = Response::Kind::lock;
  response.schedule = learner_.schedule();
  outgoing_.entries.push_back({kNoSlot, std::move(response)});
  locked_by_ = outgoing_.number;
  for (Operation* operation : open_operations(nullptr)) close_round(*operation);
  learner_.disturbed();
}

void Coordinator::unlock(std::uint64_t steps) { learner_.given_up(steps); }

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
std::uint64_t Coordinator::applied_by_all(const Group& group) const {
  std::uint64_t lowest = outgoing_.number - 1;
  for (std::size_t position = 0; position < group.set.ranks.size(); ++position) {
    if (!group.joined[position]) lowest = std::min(lowest, applied_[index(group.set.ranks[position])]);
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
    Status status = stall_status(waiting[i], now, describe_rank_);
    waiters[i].operation ? fail_round(*waiters[i].operation, std::move(status)) : fail_join(*waiters[i].group, status);
  }
}

// Oldest first. A join waits since its group was last heard of: until then the others had work. While an operation is
// open in the group, that one says who is missing.
std::vector<Coordinator::Waiter> Coordinator::find_waiters() {
  std::vector<Waiter> waiters;
  for (Operation* operation : open_operations(nullptr)) {
    waiters.push_back({operation->group, operation, operation->since});
  }
  for (auto& [id, group] : groups_) {
    const auto is_of_group = [&group = group](const Waiter& waiter) { return waiter.group == &group; };
    if (group.joined_count == 0 || std::any_of(waiters.begin(), waiters.end(), is_of_group)) continue;
    waiters.push_back({&group, nullptr, group.heard});
  }
  std::stable_sort(waiters.begin(), waiters.end(), [](const Waiter& a, const Waiter& b) { return a.since < b.since; });
  return waiters;
}

WaitingOperation Coordinator::describe(const Waiter& waiter) const {
  const Group& group = *waiter.group;
  const Operation* operation = waiter.operation;
  WaitingOperation description{.name = operation ? operation->key->name : group.join_name,
                               .collective = operation ? agreed_on(*operation).collective : Collective::join,
                               .since = waiter.since,
                               .missing = {}};
  for (int position = 0; position < group.set.size(); ++position) {
    if (group.joined[index(position)] || (operation && operation->asked[index(position)])) continue;
    description.missing.push_back(group.set.ranks[index(position)]);
  }
  return description;
}

// Oldest first, so that what is decided for many at once has one order.
std::vector<Coordinator::Operation*> Coordinator::open_operations(const Group* group) {
  std::vector<Operation*> open;
  for (auto& [key, operation] : operations_) {
    if (operation.open && (!group || operation.group == group)) open.push_back(&operation);
  }
  std::sort(open.begin(), open.end(), [](const Operation* a, const Operation* b) { return a->order < b->order; });
  return open;
}

// ---- Lookups

Coordinator::Group& Coordinator::group_of(int rank, const Request& request) {
  const auto found = groups_.find(request.process_set);
  if (found == groups_.end()) {
    violation(rank, "names process set " + std::to_string(request.process_set) + ", which does not exist");
  }
  return found->second;
}

int Coordinator::position_of(int rank, const Group& group) const {
  const auto position = group.set.rank_of(rank);
  if (!position) violation(rank, "is not in process set " + std::to_string(group.set.id));
  return *position;
}

int Coordinator::rank_at(const Operation& operation, int position) const {
  return operation.group->set.ranks[index(position)];
}

const Request& Coordinator::agreed_on(const Operation& operation) const {
  return operation.cached ? operation.cached->first() : operation.draft->first();
}

void Coordinator::violation(int rank, const std::string& what) const {
  throw Internal(describe_rank_(rank) + " breaks the protocol: it " + what);
}

}  // namespace hvd
