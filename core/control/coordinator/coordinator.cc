#include "core/control/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/control/protocol/agreement.h"

namespace hvd {
namespace {

StallInspector stall_inspector_for(const CoordinatorOptions& options, const DescribeRank& describe_rank) {
  const auto if_checked = [&](Duration time) { return options.stall_check ? time : Duration::zero(); };
  return StallInspector(if_checked(options.stall_warning), if_checked(options.stall_limit), describe_rank,
                        options.job_ranks);
}

// Without a list of sources each rank sends its own messages.
std::map<int, RankSet> sources_of(const CoordinatorOptions& options) {
  std::map<int, RankSet> sources = options.sources;
  for (int rank = 0; options.sources.empty() && rank < options.size; ++rank) sources[rank] = RankSet(rank);
  return sources;
}

// Why no rank could perform it, or receive it together with what is ready at the same time; ok if all can.
Status find_obstacle(const Response& response, std::size_t row_bytes, std::size_t max_row_bytes) {
  const auto text = [&] { return operation_text(response.spec.collective, response.spec.name) + ": "; };
  const std::string overflow = find_overflow(response);
  if (!overflow.empty()) return Status(StatusCode::mismatch, text() + overflow);
  if (row_bytes <= max_row_bytes) return {};
  return Status(
      StatusCode::unsupported,
      text() + "the numbers of rows of all ranks, with those of operations that are ready at the same time, take " +
          std::to_string(row_bytes) + " bytes; at most " + std::to_string(max_row_bytes) + " are possible");
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, const DescribeRank& describe_rank)
    : process_set_(options.process_set),
      max_row_bytes_(options.max_row_bytes),
      all_(0, options.size),
      describe_rank_(describe_rank),
      sources_(sources_of(options)),
      stalls_(stall_inspector_for(options, describe_rank)),
      negotiations_({.size = options.size, .cache_capacity = options.cache_capacity, .join_scope = options.join_scope},
                    joins_, stalls_, describe_rank),
      ready_(options.batching),
      locks_(options.locks) {
  outgoing_.number = 1;
}

void Coordinator::receive(int source, const SubtreeMessage& message, TimePoint now) {
  Sources::Source* const found = sources_.find(source);
  if (found == nullptr) violation(RankSet(source), "sends messages to a rank that is not its parent");
  if (closed_) return;
  auto& [ranks, applied] = *found;
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
  sources_.have_applied(message.applied_by_all);
  for (const RankMessage& part : message.messages) receive(part, now);
}

void Coordinator::receive(const RankMessage& message, TimePoint now) {
  if (message.latest > message.applied || message.applied >= outgoing_.number) {
    violation(message.ranks, "says it has applied message " + std::to_string(message.applied));
  }
  if (message.shut_down && !leaving_) leaving_ = message.ranks.lowest();
  if (message.applied < locked_by_) return;
  last_request_at_ = now;
  for (const std::uint32_t slot : message.hits) receive_hit(message, slot, now);
  for (const SharedRequest& request : message.requests) receive_request(message, request, now);
}

bool Coordinator::idle() const { return stalls_.nothing_waits(); }

std::optional<ResponseList> Coordinator::respond(TimePoint now) {
  if (closed_) return std::nullopt;
  if (now >= stalls_.next_check()) inspect_stalls(now);
  if (leaving_) execute_all(ready_.take_all());
  execute_all(ready_.take(negotiations_.open_count(), now));
  if (locks_ && !outgoing_.entries.empty()) {
    if (stalls_.nothing_waits()) learner_.paused();
    const bool goes_on = !leaving_ && joins_.ranks.empty();
    if (goes_on && learner_.has_schedule() && negotiations_.agree_with(learner_)) lock_schedule();
  }
  if (leaving_) {
    Response response;
    response.kind = Response::Kind::shut_down;
    response.status = Status(StatusCode::shut_down, describe_rank_(*leaving_) + " has shut hvd down");
    response.rank = *leaving_;
    append_response(std::move(response));
    closed_ = true;
  }
  if (outgoing_.entries.empty() && outgoing_.warnings.empty()) return std::nullopt;
  ResponseList next;
  next.number = outgoing_.number + 1;
  next.entries.reserve(outgoing_.entries.size());  // the next step is probably like this one
  row_bytes_ = 0;
  return std::exchange(outgoing_, std::move(next));
}

Deadline Coordinator::next_deadline() const {
  return closed_ ? Deadline::max() : std::min(stalls_.next_check(), ready_.due());
}

void Coordinator::unlock(std::uint64_t steps) { learner_.given_up(steps); }

void Coordinator::tune(const Knobs& knobs) {
  outgoing_.knobs = knobs;
  ready_.set_policy(
      {.coalescing = std::chrono::microseconds(knobs.coalescing_us), .bucket_bytes = knobs.fusion_threshold_bytes});
}

void Coordinator::allow_locks() { locks_ = true; }

// ---- What ranks ask for

void Coordinator::receive_hit(const RankMessage& message, std::uint32_t slot, TimePoint now) {
  const CoordinatorCache& cache = negotiations_.cache();
  const AgreementPtr& meant = cache.find(slot, message.applied);
  if (!meant) violation(message.ranks, "means cache slot " + std::to_string(slot) + ", which was empty for it");
  if (!meant->asked().contains(message.ranks)) {
    violation(message.ranks, "means cache slot " + std::to_string(slot) + ", which it had no part in");
  }
  if (meant == cache.current(slot)) {
    NegotiatedName& name = negotiations_.in_slot(slot);
    const bool nothing_pending = name.failed.empty() && joins_.failed.empty();
    if (nothing_pending && (!name.open || name.open->cached == meant)) {
      Negotiations::Outcome outcome = negotiations_.add_hit(name, message, meant, now);
      return apply_outcome(*name.open, std::move(outcome), now);
    }
  }
  receive_request(message, meant->request_of(message.ranks), now);
}

void Coordinator::receive_request(const RankMessage& message, const SharedRequest& request, TimePoint now) {
  const std::string& name = request.spec.name;
  if (request.spec.process_set != process_set_) {
    violation(message.ranks, "names process set " + std::to_string(request.spec.process_set));
  }
  if (request.spec.collective != Collective::join) return submit(negotiations_.of(name), message, request, now);
  // A rank that is late for a failed join gets that join's error.
  const auto deliveries = joins_.failed.take_oldest(message.ranks);
  for (const PendingFailures::Delivery& delivery : deliveries)
    negotiations_.drop_before(delivery.ranks, delivery.order);
  const RankSet joining = deliver_failures(name, deliveries, message.ranks);
  if (!joining.empty()) join(joining, name, now);
}

void Coordinator::submit(NegotiatedName& name, const RankMessage& message, const SharedRequest& request,
                         TimePoint now) {
  if (!name.failed.empty() || !joins_.failed.empty()) {
    RankSet free = deliver_failures(*name.name, name.failed.take_oldest(message.ranks), message.ranks);
    // Unnamed operations of ranks that have not come to a join that was given up are outdated.
    if (is_generated_name(*name.name)) free = deliver_failures(*name.name, joins_.failed.oldest(free), free);
    if (free.empty()) return negotiations_.forget_if_idle(name);
    if (free != message.ranks) {
      const RankMessage rest{.ranks = free, .applied = message.applied, .latest = message.latest};
      return submit(name, rest, request_of(free, message.ranks, request), now);
    }
  }
  Negotiations::Outcome outcome = negotiations_.add_request(name, message, request, now);
  apply_outcome(*name.open, std::move(outcome), now);
}

void Coordinator::join(const RankSet& ranks, const std::string& name, TimePoint now) {
  if (joins_.ranks.intersects(ranks)) violation(intersection(joins_.ranks, ranks), "joins twice");
  if (joins_.ranks.empty()) stalls_.started(now);
  joins_.ranks.add(ranks);
  joins_.name = name;
  learner_.disturbed();
  negotiations_.drop_before(ranks, negotiations_.order() + 1);
  for (Negotiation* negotiation : negotiations_.open())
    apply_outcome(*negotiation, negotiations_.update_readiness(*negotiation), now);
  if (joins_.ranks.count() < all_.count()) return;
  execute_all(ready_.take_all());

  Response response;
  response.kind = Response::Kind::all_joined;
  response.spec.process_set = process_set_;
  response.spec.name = name;
  response.spec.collective = Collective::join;
  response.rank = ranks.highest();
  append_response(std::move(response));
  joins_.ranks.clear();
  stalls_.ended();
}

// ---- Responses

void Coordinator::apply_outcome(Negotiation& negotiation, Negotiations::Outcome outcome, TimePoint now) {
  if (outcome.ready) return ready_.add(negotiation, now);
  if (!outcome.fault.empty()) fail(negotiation, Status(StatusCode::mismatch, std::move(outcome.fault)));
}

void Coordinator::execute_all(std::span<Negotiation* const> negotiations) {
  for (Negotiation* negotiation : negotiations) execute(*negotiation);
}

// A cached response stands for all ranks; if some have joined, the full response is sent.
void Coordinator::execute(Negotiation& negotiation) {
  const bool complete = negotiation.asked.count() == all_.count();
  if (!complete) negotiations_.collect_requests(negotiation);
  if (negotiation.cached) {
    outgoing_.entries.push_back({negotiation.of.slot, std::nullopt});
    learner_.executed(negotiation.of.slot, outgoing_.number, negotiation.applied);
    return negotiations_.close(negotiation);
  }
  Response response = negotiation.draft->response();
  const std::size_t bytes = row_bytes(response);
  const Status obstacle = find_obstacle(response, row_bytes_ + bytes, max_row_bytes_);
  if (!obstacle.ok()) return fail(negotiation, obstacle);
  row_bytes_ += bytes;
  // Responses that do not repeat would only evict those that do; and small long-lived allocations between large ones
  // make the heap of a program with changing names grow.
  response.slot = complete && !is_counted(*negotiation.of.name) ? negotiations_.slot_for(negotiation.of) : kNoSlot;
  if (response.slot == kNoSlot || negotiations_.cache().current(response.slot)) learner_.disturbed();
  if (response.slot != kNoSlot) {
    learner_.executed(response.slot, outgoing_.number, negotiation.applied);
    negotiations_.store(negotiation, outgoing_.number, sources_.applied_by_all(outgoing_.number - 1, joins_.ranks));
  }
  append_response(std::move(response));
  negotiations_.close(negotiation);
}

void Coordinator::fail(Negotiation& negotiation, const Status& status) {
  append_error(*negotiation.of.name, status, negotiation.asked);
  negotiations_.fail(negotiation, status);
}

// Ranks that have joined continue as if they had not. Requires that no negotiation is open.
void Coordinator::fail_join(const Status& status) {
  execute_all(ready_.take_all());
  append_error(joins_.name, status, joins_.ranks);
  joins_.failed.add(status, difference(all_, joins_.ranks), negotiations_.next_order());
  joins_.ranks.clear();
  stalls_.ended();
}

void Coordinator::append_response(Response response) { outgoing_.entries.push_back({kNoSlot, std::move(response)}); }

void Coordinator::append_error(const std::string& name, const Status& status, const RankSet& ranks) {
  Response response;
  response.kind = Response::Kind::error;
  response.spec.process_set = process_set_;
  response.spec.name = name;
  response.status = status;
  response.ranks = ranks.to_vector();
  learner_.disturbed();
  append_response(std::move(response));
}

// Answers those of the ranks that were late for a failure with it. Returns the others.
RankSet Coordinator::deliver_failures(const std::string& name, const std::vector<PendingFailures::Delivery>& deliveries,
                                      const RankSet& ranks) {
  RankSet free = ranks;
  for (const PendingFailures::Delivery& delivery : deliveries) {
    append_error(name, delivery.status, delivery.ranks);
    free.remove(delivery.ranks);
  }
  return free;
}

void Coordinator::lock_schedule() {
  Response response;
  response.kind = Response::Kind::lock;
  response.schedule = learner_.schedule();
  append_response(std::move(response));
  locked_by_ = outgoing_.number;
  ready_.take_all();
  for (Negotiation* negotiation : negotiations_.open()) negotiations_.close(*negotiation);
  learner_.disturbed();
}

// ---- Stalls

void Coordinator::inspect_stalls(TimePoint now) {
  const RankSet expected = difference(all_, joins_.ranks);
  std::vector<Negotiation*> waiters;  // oldest first; null: the join
  std::vector<WaitingOperation> waiting;
  for (Negotiation* negotiation : negotiations_.open()) {
    if (!negotiation->ready) waiters.push_back(negotiation);
  }
  std::ranges::stable_sort(waiters, {}, &Negotiation::since);
  for (const Negotiation* negotiation : waiters) {
    waiting.push_back({.name = *negotiation->of.name,
                       .collective = negotiation->agreement().first().collective,
                       .since = negotiation->since,
                       .missing = difference(expected, negotiation->asked).to_vector()});
  }
  // While an operation is open, it determines which ranks are missing. A join has waited since the last request of any
  // rank: until then the others had work.
  if (waiters.empty() && !joins_.ranks.empty()) {
    waiters.push_back(nullptr);
    waiting.push_back({.name = joins_.name,
                       .collective = Collective::join,
                       .since = last_request_at_,
                       .missing = expected.to_vector()});
  }
  StallInspector::Findings findings = stalls_.inspect(waiting, now);
  if (!findings.warning.empty()) outgoing_.warnings.push_back(std::move(findings.warning));
  for (const std::size_t i : findings.expired) {
    const Status status = stalls_.status_of_expired(waiting[i], now);
    waiters[i] != nullptr ? fail(*waiters[i], status) : fail_join(status);
  }
}

void Coordinator::violation(const RankSet& ranks, const std::string& what) const {
  report_violation(ranks, what, describe_rank_);
}

}  // namespace hvd
