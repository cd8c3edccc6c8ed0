#include "simulation/control_plane.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/control/protocol/wire.h"
#include "core/control/schedule/schedule_lock.h"
#include "core/execution/bucket.h"

namespace hvd::simulation {

namespace {

// The defaults of a job: see Negotiator and Config.
constexpr Duration kAggregationDelay = 100ms;
constexpr std::size_t kCacheCapacity = 1024;
constexpr std::int64_t kFusionBytes = std::int64_t{64} << 20;

// Size of the text that names the lost rank.
constexpr std::size_t kLossBytes = 100;

Topology topology_of(const Job& job) {
  if (job.ranks < 1 || job.ranks_per_host < 1) throw InvalidArgument("a job has at least one rank on each host");
  std::vector<RankIdentity> identities(static_cast<std::size_t>(job.ranks));
  for (int rank = 0; rank < job.ranks; ++rank) {
    identities[static_cast<std::size_t>(rank)].host_key = std::to_string(rank / job.ranks_per_host);
  }
  return make_topology(0, std::move(identities));
}

// Requests and hits, or whole responses and those by number.
Amount amount_of(const SubtreeMessage& message) {
  Amount amount{.messages = 1};
  for (const RankMessage& part : message.messages) {
    amount.requests += part.requests.size();
    amount.hits += part.hits.size();
  }
  return amount;
}

Amount amount_of(const CoordinatorMessage& message) {
  Amount amount{.messages = 1};
  for (const auto& entry : message.entries) ++(entry.response ? amount.requests : amount.hits);
  return amount;
}

}  // namespace

ControlPlane::ControlPlane(const Job& job, Processor& processor)
    : alike_(job.alike),
      rotated_(job.rotated && !job.alike),
      operations_(job.operations),
      topology_(topology_of(job)),
      processor_(processor),
      network_(queue_, job.network, topology_.host_of, job.seed),
      nodes_(static_cast<std::size_t>(job.ranks)),
      caches_(static_cast<std::size_t>(job.alike ? 1 : job.ranks)) {
  for (std::size_t i = 0; i < operations_.size(); ++i) by_name_.emplace(operations_[i].name, i);
  for (topology_.rank = 0; topology_.rank < topology_.size; ++topology_.rank) {
    const int rank = topology_.rank;
    const ControlTree tree = make_control_tree(topology_);
    node(rank).parent = tree.parent;
    bool of_subtrees = !tree.is_root() && !tree.is_leaf();
    for (const auto& [child, ranks] : tree.children) {
      node(rank).children.push_back(child);
      of_subtrees = of_subtrees || ranks.count() > 1;
    }
    if (of_subtrees)
      node(rank).message_combiner = std::make_unique<MessageCombiner>(tree.sources(rank), kAggregationDelay);
    if (tree.is_root()) {
      const CoordinatorOptions options{.size = job.ranks,
                                       .sources = tree.sources(0),
                                       .cache_capacity = kCacheCapacity,
                                       .stall_check = false,
                                       .locks = true};
      coordinator_ = std::make_unique<Coordinator>(options, [](int which) { return "rank " + std::to_string(which); });
    } else if (!tree.is_leaf()) {
      node(rank).request_aggregator = std::make_unique<RequestAggregator>(tree.sources(rank), kAggregationDelay);
    }
  }
}

int ControlPlane::most_neighbours() const {
  std::ptrdiff_t most = 0;
  for (int rank = 0; rank < topology_.size; ++rank) {
    const Node& at = nodes_[static_cast<std::size_t>(rank)];
    const auto elsewhere = [&](int other) {
      return other != kNoParent &&
             topology_.host_of[static_cast<std::size_t>(other)] != topology_.host_of[static_cast<std::size_t>(rank)];
    };
    most = std::max(most, std::ranges::count_if(at.children, elsewhere) + (elsewhere(at.parent) ? 1 : 0));
  }
  return static_cast<int>(most);
}

// ---- A round

Round ControlPlane::negotiate() {
  begin_round();
  while (unfinished_ > 0) {
    if (!queue_.step()) throw Internal("the round does not end: no message is under way");
  }
  return finish_round();
}

void ControlPlane::begin_round() {
  network_.reset_traffic();
  began_ = finished_ = queue_.now();
  unfinished_ = topology_.size;
  buckets_ = 0;
  schedule_.reset();
  const SubtreeMessage said = statement_of(0);
  shared_ = encode(said);
  announced_ = amount_of(said);
  for (int rank = 0; rank < topology_.size; ++rank) {
    node(rank).open = operations_.size();
    queue_.at(began_, [this, rank] { announce(rank); });
  }
}

Round ControlPlane::finish_round() {
  Round round{.time = finished_ - began_,
              .requests = announced_.requests,
              .hits = announced_.hits,
              .buckets = buckets_,
              .said_bytes = shared_.size(),
              .answer_bytes = answer_bytes_,
              .locks = schedule_.has_value(),
              .root = network_.traffic().front()};
  for (const Traffic& sent : network_.traffic()) {
    round.most.messages = std::max(round.most.messages, sent.messages);
    round.most.bytes = std::max(round.most.bytes, sent.bytes);
    round.most.local_messages = std::max(round.most.local_messages, sent.local_messages);
    round.messages += sent.messages;
  }
  return round;
}

void ControlPlane::announce(int rank) {
  if (network_.lost(rank)) return;
  Envelope envelope{.from = rank};
  std::size_t bytes = shared_.size();
  const Duration time = processor_.perform(Work::announce, [&] { return send(rank, envelope); });
  if (envelope.statement) bytes = envelope.statement->size();
  node(rank).free_at = queue_.now() + time;
  if (rank == 0 || node(rank).request_aggregator) {
    queue_.at(node(rank).free_at, [this, rank, envelope] { arrive(rank, envelope); });
  } else {
    post(rank, node(rank).parent, envelope, bytes, node(rank).free_at);
  }
}

Amount ControlPlane::send(int rank, Envelope& envelope) {
  if (alike_) return announced_;
  const SubtreeMessage own = statement_of(rank);
  envelope.statement = std::make_shared<const Bytes>(encode(own));
  return amount_of(own);
}

SubtreeMessage ControlPlane::statement_of(int rank) {
  RankMessage message{.ranks = RankSet(rank), .applied = node(rank).applied, .latest = node(rank).applied};
  const std::size_t first = rotated_ ? static_cast<std::size_t>(rank) : 0;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const OperationSpec& spec = operations_[(first + i) % operations_.size()];
    if (const auto slot = cache_of(rank).find(spec)) {
      message.hits.push_back(*slot);
    } else {
      message.requests.emplace_back(spec);
    }
  }
  std::sort(message.hits.begin(), message.hits.end());
  SubtreeMessage own{.applied_by_all = node(rank).applied};
  own.messages.push_back(std::move(message));
  return own;
}

// The sender's processing, except for the overhead of sending, is done at `ready`.
void ControlPlane::post(int from, int to, Envelope envelope, std::size_t bytes, TimePoint ready) {
  envelope.from = from;
  network_.send(from, to, bytes, ready + network_.link(from, to).overhead,
                [this, to, envelope = std::move(envelope)]() mutable { arrive(to, std::move(envelope)); });
}

void ControlPlane::arrive(int rank, Envelope envelope) {
  node(rank).inbox.push_back(std::move(envelope));
  wake(rank);
}

// ---- The work of a rank's processor

void ControlPlane::wake(int rank) {
  Node& at = node(rank);
  if (at.busy) return;
  at.busy = true;
  queue_.at(at.free_at, [this, rank] { work(rank); });
}

// Does one piece of work and schedules the next.
void ControlPlane::work(int rank) {
  Node& at = node(rank);
  at.busy = false;
  if (network_.lost(rank) || at.heard_of_loss) return;
  if (at.taken < at.inbox.size()) {
    const Envelope envelope = std::move(at.inbox[at.taken++]);
    at.free_at = queue_.now() + take_in(rank, envelope);
    return wake(rank);
  }
  at.inbox.clear();
  at.taken = 0;
  at.free_at = queue_.now() + speak(rank);
}

Duration ControlPlane::take_in(int rank, const Envelope& envelope) {
  const Duration received = envelope.from == rank ? Duration::zero() : network_.link(envelope.from, rank).overhead;
  if (envelope.answer) return received + spread(rank, envelope.answer, queue_.now() + received);
  std::vector<Bytes> upward;
  const Duration time = received + hear(rank, envelope, upward);
  return time + pass_up(rank, std::move(upward), queue_.now() + time);
}

Duration ControlPlane::hear(int rank, const Envelope& envelope, std::vector<Bytes>& upward) {
  Bytes bytes = envelope.statement ? *envelope.statement : shared_statement(envelope.from);
  MessageCombiner::Heard heard;
  const Duration time = processor_.perform(Work::hear, [&] {
    Amount amount{.messages = 1, .bytes = bytes.size()};
    const MessageCombiner* message_combiner = node(rank).message_combiner.get();
    const bool held_before = message_combiner && message_combiner->next_deadline() != Deadline::max();
    heard = listen(rank, envelope.from, std::move(bytes));
    for (const auto& [source, message] : heard.apart) amount += amount_of(message);
    // The first message to be held is parsed, too.
    if (message_combiner && !held_before && message_combiner->next_deadline() != Deadline::max()) amount += announced_;
    return amount;
  });
  return time + read(rank, heard, upward);
}

MessageCombiner::Heard ControlPlane::listen(int rank, int source, Bytes bytes) {
  Node& at = node(rank);
  const bool idle = at.request_aggregator ? at.request_aggregator->idle() : coordinator_->idle();
  if (at.message_combiner) return at.message_combiner->receive(source, std::move(bytes), idle, queue_.now());
  MessageCombiner::Heard heard;
  heard.apart.emplace_back(source, decode_subtree_message(bytes));
  return heard;
}

// Appends messages that are passed on without parsing to `upward`.
Duration ControlPlane::read(int rank, const MessageCombiner::Heard& heard, std::vector<Bytes>& upward) {
  Node& at = node(rank);
  if (heard.together && at.request_aggregator) {
    at.request_aggregator->let_pass(heard.applied_by_all);
    upward.push_back(*heard.together);
  }
  return processor_.perform(rank == 0 ? Work::coordinate : Work::gather, [&] {
    Amount amount;
    for (const auto& [source, message] : heard.apart) {
      amount += amount_of(message);
      if (at.request_aggregator) {
        at.request_aggregator->receive(source, message, queue_.now());
      } else {
        coordinator_->receive(source, message, queue_.now());
      }
    }
    if (!heard.together || at.request_aggregator) return amount;
    const SubtreeMessage message = decode_subtree_message(*heard.together);
    coordinator_->receive_from_all(message, queue_.now());
    return amount += amount_of(message);
  });
}

// The ranks' copies differ only in the sender.
Bytes ControlPlane::shared_statement(int rank) const {
  OpaqueMessage message = peek(shared_).value();
  message.ranks = RankSet(rank);
  return encode(message);
}

Duration ControlPlane::speak(int rank) {
  Node& at = node(rank);
  if (!at.message_combiner && rank != 0) return {};
  std::vector<Bytes> upward;
  Duration time{};
  if (at.message_combiner) time += read(rank, at.message_combiner->take(queue_.now()), upward);
  time += processor_.perform(Work::pass_up, [&]() -> Amount {
    const auto message = at.request_aggregator ? at.request_aggregator->take(queue_.now()) : std::nullopt;
    if (!message) return {};
    upward.push_back(encode(*message));
    return amount_of(*message);
  });
  time += pass_up(rank, std::move(upward), queue_.now() + time);
  set_timer(rank);
  return rank == 0 ? time + respond() : time;
}

Duration ControlPlane::pass_up(int rank, std::vector<Bytes> upward, TimePoint ready) {
  Duration time{};
  for (Bytes& bytes : upward) {
    const std::size_t size = bytes.size();
    post(rank, node(rank).parent, {.statement = std::make_shared<const Bytes>(std::move(bytes))}, size, ready + time);
    time += network_.link(rank, node(rank).parent).overhead;
  }
  return time;
}

void ControlPlane::set_timer(int rank) {
  Node& at = node(rank);
  Deadline due = at.message_combiner ? at.message_combiner->next_deadline() : Deadline::max();
  if (at.request_aggregator) due = std::min(due, at.request_aggregator->next_deadline());
  if (due == at.timer) return;
  at.timer = due;
  if (due != Deadline::max()) queue_.at(due, [this, rank] { wake(rank); });
}

Duration ControlPlane::respond() {
  auto answer = std::make_shared<Answer>();
  const Duration time = processor_.perform(Work::answer, [&]() -> Amount {
    auto message = coordinator_->respond(queue_.now());
    if (!message) return {};
    answer->bytes = encode(*message);
    answer_bytes_ = answer->bytes.size();
    answer->message = std::move(*message);
    return amount_of(answer->message);
  });
  return answer->bytes.empty() ? time : time + spread(0, answer, queue_.now() + time);
}

// Forwards the answer first, so that the children receive it as early as possible.
Duration ControlPlane::spread(int rank, const std::shared_ptr<const Answer>& answer, TimePoint start) {
  Duration time{};
  for (const int child : node(rank).children) {
    post(rank, child, {.answer = answer}, answer->bytes.size(), start + time);
    time += network_.link(rank, child).overhead;
  }
  if (node(rank).request_aggregator) {
    std::vector<Bytes> none;
    time += read(rank, node(rank).message_combiner->break_up(), none);
  }
  std::size_t performed = 0;
  time += processor_.perform(Work::apply, [&] {
    performed = apply(rank, *answer);
    return amount_of(answer->message);
  });
  Node& at = node(rank);
  at.open -= performed;
  if (performed > 0 && at.open == 0) {
    --unfinished_;
    finished_ = std::max(finished_, start + time);
  }
  return time;
}

// Returns the number of operations that the answer performs.
std::size_t ControlPlane::apply(int rank, const Answer& answer) {
  Node& at = node(rank);
  CoordinatorMessage own;
  if (!alike_) own = decode_coordinator_message(answer.bytes);
  const CoordinatorMessage& message = alike_ ? answer.message : own;
  if (message.number != at.applied + 1) throw Internal("the coordinator's messages came out of order");
  at.applied = message.number;
  if (at.request_aggregator) at.request_aggregator->pass(message);
  if (alike_ && message.number <= remembered_) return performed_;
  remembered_ = message.number;
  return performed_ = remember(cache_of(rank), message);
}

std::size_t ControlPlane::remember(ResponseCache& cache, CoordinatorMessage message) {
  std::vector<std::shared_ptr<const Response>> executes;
  for (auto& entry : message.entries) {
    if (!entry.response) {
      executes.push_back(cache.at(entry.cached_slot));
      continue;
    }
    if (entry.response->kind == Response::Kind::lock) {
      schedule_ = entry.response->schedule;
      continue;
    }
    if (entry.response->kind != Response::Kind::execute)
      throw Internal("an operation fails: " + entry.response->status.message());
    executes.push_back(std::make_shared<const Response>(std::move(*entry.response)));
    if (executes.back()->slot == kNoSlot) continue;
    const OperationSpec& own = operations_[by_name_.find(executes.back()->spec.name)->second];
    cache.store(executes.back()->slot, executes.back(), &own);
  }
  std::vector<const Response*> pointers;
  for (const auto& response : executes) pointers.push_back(response.get());
  buckets_ = plan_buckets(pointers, kFusionBytes).size();
  return executes.size();
}

// ---- The locked schedule

Round ControlPlane::follow_schedule() {
  if (!schedule_) throw Internal("no schedule is locked");
  network_.reset_traffic();
  std::vector<std::vector<const Response*>> groups;
  std::vector<std::shared_ptr<const Response>> scheduled;
  for (const auto& slots : *schedule_) {
    groups.emplace_back();
    for (const std::uint32_t slot : slots) groups.back().push_back(scheduled.emplace_back(cache_of(0).at(slot)).get());
  }
  std::vector<std::vector<std::uint32_t>> stages;
  for (const Stage& stage : plan_stages(groups, kFusionBytes)) {
    stages.emplace_back();
    for (const Response* response : responses_of(stage)) stages.back().push_back(response->slot);
  }
  std::vector<std::uint32_t> slots;
  for (const OperationSpec& spec : operations_) slots.push_back(cache_of(0).find(spec).value());

  began_ = finished_ = queue_.now();
  for (int rank = 0; rank < topology_.size; ++rank) {
    ScheduleLock lock;
    lock.propose(1, stages);
    const Duration time = processor_.perform(Work::follow, [&] { return follow(rank, lock, slots); });
    if (lock.state() != ScheduleLock::State::locked || lock.steps() != 1)
      throw Internal("a step is not like the schedule");
    finished_ = std::max(finished_, began_ + time);
  }
  announced_ = {};
  shared_.clear();
  answer_bytes_ = 0;
  buckets_ = stages.size();
  return finish_round();
}

Amount ControlPlane::follow(int rank, ScheduleLock& lock, const std::vector<std::uint32_t>& slots) {
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    lock.submitted(alike_ ? slots[i] : cache_of(rank).find(operations_[i]).value());
    while (lock.next(false).kind == ScheduleLock::Step::Kind::perform) lock.performed();
  }
  return {.messages = 1, .hits = operations_.size()};
}

// ---- Loss

Loss ControlPlane::lose(int rank, Duration after) {
  begin_round();
  loss_ = {.rank = rank};
  const TimePoint when = began_ + after;
  queue_.at(when, [this, rank] {
    network_.lose(rank);
    // The lost rank's connections close.
    for_neighbours(rank, [&](int other) {
      queue_.at(queue_.now() + network_.link(rank, other).latency, [this, other, rank] { hear_of_loss(other, rank); });
    });
  });
  while (loss_.heard < topology_.size - 1 && queue_.step()) {
    if (loss_.heard == 1 && loss_.first == Duration::zero()) loss_.first = queue_.now() - when;
  }
  loss_.last = queue_.now() - when;
  return loss_;
}

// As in ControlLinks, whose thread is not delayed by the rank's other work.
void ControlPlane::hear_of_loss(int rank, int from) {
  if (network_.lost(rank) || node(rank).heard_of_loss) return;
  node(rank).heard_of_loss = true;
  ++loss_.heard;
  TimePoint ready = queue_.now() + network_.link(from, rank).overhead;
  for_neighbours(rank, [&](int other) {
    if (other == from) return;
    ready += network_.link(rank, other).overhead;
    network_.send(rank, other, kLossBytes, ready, [this, other, rank] { hear_of_loss(other, rank); });
  });
}

void ControlPlane::for_neighbours(int rank, const std::function<void(int)>& body) {
  if (node(rank).parent != kNoParent) body(node(rank).parent);
  for (const int child : node(rank).children) body(child);
}

}  // namespace hvd::simulation
