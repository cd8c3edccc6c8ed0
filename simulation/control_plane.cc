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

// The defaults of a job: see Config.
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

Amount amount_of(const ResponseList& message) {
  Amount amount{.messages = 1};
  for (const auto& entry : message.entries) ++(entry.response ? amount.requests : amount.hits);
  return amount;
}

// The ranks' copies of a message that all send differ only in the sender.
Bytes copy_from(int rank, const Bytes& shared) {
  OpaqueMessage message = peek(shared).value();
  message.ranks = RankSet(rank);
  return encode(message);
}

}  // namespace

// A piece of work of a rank's processor: charges for what its node does, and sends messages when the work up to there
// has been done.
struct ControlPlane::Port {
  ControlPlane& plane;
  const int rank;
  std::size_t received_bytes = 0;  // of the message that is processed
  Duration time{};                 // of the work so far
  Amount amount{};                 // of the node's current work

  void send(int to, Bytes message) {
    const std::size_t bytes = message.size();
    post(to, {.from = rank, .requests = std::make_shared<const Bytes>(std::move(message))}, bytes);
  }
  void send(int to, const std::shared_ptr<const EncodedResponse>& response) {
    post(to, {.from = rank, .response = response}, response->bytes.size());
  }
  void post(int to, Envelope envelope, std::size_t bytes) {
    time += plane.network_.link(rank, to).overhead;
    plane.network_.send(
        rank, to, bytes, plane.queue_.now() + time,
        [&plane = plane, to, envelope = std::move(envelope)]() mutable { plane.arrive(to, std::move(envelope)); });
  }

  void charge(Work work, const std::function<Amount()>& body) { time += plane.processor_.perform(work, body); }
  void perform(NodeWork work, auto body) {
    static constexpr Work kWorkOf[] = {Work::receive, Work::aggregate, Work::coordinate, Work::combine};
    charge(kWorkOf[static_cast<std::size_t>(work)], [&] {
      const ControlNode& node = plane.at(rank).node;
      const bool held_before = node.holds_messages();
      amount = {};
      body();
      if (work != NodeWork::combine) return amount;
      // The first message to be held is parsed, too.
      if (!held_before && node.holds_messages()) amount += plane.announced_;
      return amount += {.messages = 1, .bytes = received_bytes};
    });
  }
  void read(NodeWork, const SubtreeMessage& message) { amount += amount_of(message); }
};

ControlPlane::ControlPlane(const Job& job, Processor& processor)
    : job_(job),
      topology_(topology_of(job)),
      processor_(processor),
      network_(queue_, job.network, topology_.host_of, job.seed),
      caches_(static_cast<std::size_t>(job.alike ? 1 : job.ranks)) {
  for (const OperationSpec& spec : job_.operations) by_name_.emplace(spec.name, &spec);
  const CoordinatorOptions options{
      .size = job.ranks, .cache_capacity = kCacheCapacity, .stall_check = false, .locks = true};
  ranks_.reserve(static_cast<std::size_t>(job.ranks));
  for (topology_.rank = 0; topology_.rank < topology_.size; ++topology_.rank) {
    ranks_.push_back({.node = ControlNode(topology_.rank, make_control_tree(topology_), options,
                                          [](int which) { return "rank " + std::to_string(which); })});
  }
}

int ControlPlane::max_neighbours() {
  std::ptrdiff_t most = 0;
  for (int rank = 0; rank < topology_.size; ++rank) {
    std::ptrdiff_t count = 0;
    for_neighbours(rank, [&](int other) {
      if (topology_.host_of[static_cast<std::size_t>(other)] != topology_.host_of[static_cast<std::size_t>(rank)])
        ++count;
    });
    most = std::max(most, count);
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
  began_ = queue_.now();
  unfinished_ = topology_.size;
  schedule_.reset();
  const SubtreeMessage requests = message_of(0);
  shared_ = encode(requests);
  announced_ = amount_of(requests);
  round_ = {.requests = announced_.requests, .hits = announced_.hits, .request_bytes = shared_.size()};
  for (int rank = 0; rank < topology_.size; ++rank) {
    at(rank).open = job_.operations.size();
    queue_.at(began_, [this, rank] { announce(rank); });
  }
}

Round ControlPlane::finish_round() {
  round_.locks = schedule_.has_value();
  round_.root = network_.traffic().front();
  for (const Traffic& sent : network_.traffic()) {
    round_.max.messages = std::max(round_.max.messages, sent.messages);
    round_.max.bytes = std::max(round_.max.bytes, sent.bytes);
    round_.max.local_messages = std::max(round_.max.local_messages, sent.local_messages);
    round_.messages += sent.messages;
  }
  return round_;
}

SubtreeMessage ControlPlane::message_of(int rank) {
  std::vector<const OperationSpec*> specs;
  for (const OperationSpec& spec : job_.operations) specs.push_back(&spec);
  const bool rotated = job_.rotated && !job_.alike;
  const std::size_t first = rotated ? static_cast<std::size_t>(rank) % specs.size() : 0;
  std::rotate(specs.begin(), specs.begin() + static_cast<std::ptrdiff_t>(first), specs.end());
  return at(rank).node.message_of(specs, cache_of(rank), false);
}

void ControlPlane::announce(int rank) {
  if (network_.lost(rank)) return;
  Envelope envelope{.from = rank};
  Port port{.plane = *this, .rank = rank};
  port.charge(Work::request, [&] {
    if (job_.alike) return announced_;
    const SubtreeMessage own = message_of(rank);
    envelope.requests = std::make_shared<const Bytes>(encode(own));
    return amount_of(own);
  });
  at(rank).free_at = queue_.now() + port.time;
  const ControlTree& tree = at(rank).node.tree();
  if (!tree.is_leaf() || tree.is_root()) {
    queue_.at(at(rank).free_at, [this, rank, envelope] { arrive(rank, envelope); });
  } else {
    port.post(tree.parent, envelope, envelope.requests ? envelope.requests->size() : shared_.size());
  }
}

void ControlPlane::arrive(int rank, Envelope envelope) {
  at(rank).inbox.push_back(std::move(envelope));
  wake(rank);
}

// ---- The work of a rank's processor

void ControlPlane::wake(int rank) {
  Rank& own = at(rank);
  if (own.busy) return;
  own.busy = true;
  queue_.at(own.free_at, [this, rank] { work(rank); });
}

// Does one piece of work and schedules the next.
void ControlPlane::work(int rank) {
  Rank& own = at(rank);
  own.busy = false;
  if (network_.lost(rank) || own.knows_of_loss) return;
  if (own.taken < own.inbox.size()) {
    const Envelope envelope = std::move(own.inbox[own.taken++]);
    own.free_at = queue_.now() + receive(rank, envelope);
    return wake(rank);
  }
  own.inbox.clear();
  own.taken = 0;
  own.free_at = queue_.now() + send_up(rank);
}

Duration ControlPlane::receive(int rank, const Envelope& envelope) {
  Port port{.plane = *this, .rank = rank};
  if (envelope.from != rank) port.time = network_.link(envelope.from, rank).overhead;
  if (envelope.response) return spread(port, envelope.response);
  Bytes bytes = envelope.requests ? *envelope.requests : copy_from(envelope.from, shared_);
  port.received_bytes = bytes.size();
  at(rank).node.receive(port, envelope.from, std::move(bytes), queue_.now());
  return port.time;
}

Duration ControlPlane::send_up(int rank) {
  Port port{.plane = *this, .rank = rank};
  Rank& own = at(rank);
  own.node.send_up(port, queue_.now());
  if (const Deadline due = own.node.next_release(); due != own.timer) {
    own.timer = due;
    if (due != Deadline::max()) queue_.at(due, [this, rank] { wake(rank); });
  }
  return rank == 0 ? port.time + respond() : port.time;
}

Duration ControlPlane::respond() {
  auto response = std::make_shared<EncodedResponse>();
  Port port{.plane = *this, .rank = 0};
  port.charge(Work::respond, [&]() -> Amount {
    auto message = at(0).node.coordinator()->respond(queue_.now());
    if (!message) return {};
    response->bytes = encode(*message);
    round_.response_bytes = response->bytes.size();
    response->message = std::move(*message);
    return amount_of(response->message);
  });
  return response->bytes.empty() ? port.time : spread(port, response);
}

Duration ControlPlane::spread(Port& port, const std::shared_ptr<const EncodedResponse>& response) {
  Rank& own = at(port.rank);
  own.node.forward(port, response, queue_.now());
  std::size_t performed = 0;
  port.charge(Work::apply, [&] {
    performed = apply(port.rank, *response);
    return amount_of(response->message);
  });
  own.open -= performed;
  if (performed > 0 && own.open == 0) {
    --unfinished_;
    round_.time = std::max(round_.time, queue_.now() + port.time - began_);
  }
  return port.time;
}

// Returns the number of operations that the response performs.
std::size_t ControlPlane::apply(int rank, const EncodedResponse& response) {
  ResponseList own;
  if (!job_.alike) own = decode_response_list(response.bytes);
  const ResponseList& message = job_.alike ? response.message : own;
  at(rank).node.accept(message);
  if (job_.alike && message.number <= remembered_) return performed_;
  remembered_ = message.number;
  return performed_ = remember(cache_of(rank), message);
}

std::size_t ControlPlane::remember(ResponseCache& cache, ResponseList message) {
  std::vector<std::shared_ptr<const Response>> executes;
  for (auto& entry : message.entries) {
    if (entry.response && entry.response->kind == Response::Kind::lock) {
      schedule_ = entry.response->schedule;
      continue;
    }
    const bool is_new = entry.response.has_value();
    executes.push_back(cache.resolve(std::move(entry)));
    const Response& response = *executes.back();
    if (response.kind != Response::Kind::execute) throw Internal("an operation fails: " + response.status.message());
    if (is_new) cache.store(executes.back(), by_name_.find(response.spec.name)->second);
  }
  std::vector<const Response*> pointers;
  for (const auto& response : executes) pointers.push_back(response.get());
  round_.buckets = plan_buckets(pointers, kFusionBytes).size();
  return executes.size();
}

// ---- The locked schedule

std::vector<std::vector<std::uint32_t>> ControlPlane::stages_of(const Schedule& schedule) {
  std::vector<std::vector<const Response*>> groups;
  std::vector<std::shared_ptr<const Response>> scheduled;
  for (const auto& slots : schedule) {
    groups.emplace_back();
    for (const std::uint32_t slot : slots) groups.back().push_back(scheduled.emplace_back(cache_of(0).at(slot)).get());
  }
  std::vector<std::vector<std::uint32_t>> stages;
  for (const Stage& stage : plan_stages(groups, kFusionBytes)) {
    stages.emplace_back();
    for (const Response* response : responses_of(stage)) stages.back().push_back(response->slot);
  }
  return stages;
}

Round ControlPlane::follow_schedule() {
  if (!schedule_) throw Internal("no schedule is locked");
  network_.reset_traffic();
  const std::vector<std::vector<std::uint32_t>> stages = stages_of(*schedule_);
  std::vector<std::uint32_t> slots;
  for (const OperationSpec& spec : job_.operations) slots.push_back(cache_of(0).find(spec).value());

  round_ = {.buckets = stages.size()};
  for (int rank = 0; rank < topology_.size; ++rank) {
    ScheduleLock lock;
    lock.propose(1, stages);
    const Duration time = processor_.perform(Work::follow, [&]() -> Amount {
      for (std::size_t i = 0; i < slots.size(); ++i) {
        lock.submitted(job_.alike ? slots[i] : cache_of(rank).find(job_.operations[i]).value());
        while (lock.next(false).kind == ScheduleLock::Action::Kind::perform) lock.performed();
      }
      return {.messages = 1, .hits = slots.size()};
    });
    if (lock.state() != ScheduleLock::State::locked || lock.steps() != 1)
      throw Internal("a step is not like the schedule");
    round_.time = std::max(round_.time, time);
  }
  return finish_round();
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
      queue_.at(queue_.now() + network_.link(rank, other).latency, [this, other, rank] { learn_of_loss(other, rank); });
    });
  });
  while (loss_.informed < topology_.size - 1 && queue_.step()) {
    if (loss_.informed == 1 && loss_.first == Duration::zero()) loss_.first = queue_.now() - when;
  }
  if (loss_.informed > 0) loss_.last = queue_.now() - when;  // a job of one rank has nobody to inform
  return loss_;
}

// As in ControlLinks, whose thread is not delayed by the rank's other work.
void ControlPlane::learn_of_loss(int rank, int from) {
  if (network_.lost(rank) || at(rank).knows_of_loss) return;
  at(rank).knows_of_loss = true;
  ++loss_.informed;
  TimePoint ready = queue_.now() + network_.link(from, rank).overhead;
  for_neighbours(rank, [&](int other) {
    if (other == from) return;
    ready += network_.link(rank, other).overhead;
    network_.send(rank, other, kLossBytes, ready, [this, other, rank] { learn_of_loss(other, rank); });
  });
}

void ControlPlane::for_neighbours(int rank, const std::function<void(int)>& body) {
  const ControlTree& tree = at(rank).node.tree();
  if (!tree.is_root()) body(tree.parent);
  for (const auto& [child, ranks] : tree.children) body(child);
}

}  // namespace hvd::simulation
