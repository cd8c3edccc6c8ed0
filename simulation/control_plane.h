// A whole job's control plane on one virtual clock: the real classes at every rank, with a simulated network between.
//
// Rank 0 has the Coordinator, each node of the control tree a RequestAggregator, both behind a MessageCombiner, each
// rank a ResponseCache and a ScheduleLock; messages are those of wire.h. A rank's processor does one thing at a time:
// it takes in all that has arrived, and then says what is due, as Negotiator does.
//
// A round begins on all ranks at once: each submits all its operations, announces them, and is done when it has been
// told to perform them. The collectives themselves are not simulated.
//
// Ranks that know and send the same share one cache and one encoded message where Job::alike is set, or memory would
// not do for 100,000 ranks. All else exists for each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/negotiation/control_tree.h"
#include "core/negotiation/coordinator.h"
#include "core/negotiation/message_combiner.h"
#include "core/negotiation/request_aggregator.h"
#include "core/negotiation/response_cache.h"
#include "core/negotiation/schedule_lock.h"
#include "core/net/frame.h"
#include "core/rendezvous/topology.h"
#include "core/submission/name_map.h"
#include "simulation/event_queue.h"
#include "simulation/network.h"
#include "simulation/processor.h"

namespace hvd::simulation {

struct Job {
  int ranks = 8;
  int ranks_per_host = 8;
  std::vector<Request> operations;  // that every rank submits in each round
  NetworkParameters network;
  std::uint64_t seed = 1;
  bool alike = true;
  bool rotated = false;  // unless alike: each rank announces in an order of its own
};

struct Round {
  Duration time{};           // from the submissions to when the last rank knows what to perform
  std::size_t requests = 0;  // that each rank announced whole,
  std::size_t hits = 0;      // and by number
  std::size_t buckets = 0;
  std::size_t said_bytes = 0;    // of what a rank announced,
  std::size_t answer_bytes = 0;  // and of the last answer
  bool locks = false;            // ends with a schedule
  Traffic root{};                // of rank 0
  Traffic most{};                // of any rank, each number by itself
  std::int64_t messages = 0;     // of all ranks, between hosts
};

// Who hears how fast that a rank is gone.
struct Loss {
  int rank = 0;
  int heard = 0;     // ranks; all but the lost one should
  Duration first{};  // after the loss
  Duration last{};
};

class ControlPlane {
 public:
  ControlPlane(const Job& job, Processor& processor);

  int hosts() const { return static_cast<int>(topology_.hosts.size()); }
  // The most neighbours on other hosts that a rank has.
  int most_neighbours() const;

  // A round of messages. Throws Internal if it does not come to its end.
  Round negotiate();

  // After a round that locks: every rank goes through the schedule once more.
  Round follow_schedule();

  // A rank dies in the middle of a round: so long after it began. The job is over then.
  Loss lose(int rank, Duration after);

 private:
  struct Answer {
    Bytes bytes;
    CoordinatorMessage message;
  };
  // What arrives at a rank, or what it says itself.
  struct Envelope {
    int from = 0;
    std::shared_ptr<const Bytes> statement{};  // null, and no answer either: what all ranks send in this round
    std::shared_ptr<const Answer> answer{};
  };
  struct Node {
    int parent = kNoParent;
    std::vector<int> children;
    std::unique_ptr<MessageCombiner> message_combiner;
    std::unique_ptr<RequestAggregator> request_aggregator;
    std::vector<Envelope> inbox;
    std::size_t taken = 0;  // of the inbox
    bool busy = false;      // its next work is filed
    TimePoint free_at{};
    Deadline timer = Deadline::max();  // of what is held back
    std::uint64_t applied = 0;         // messages
    std::size_t open = 0;              // operations
    bool heard_of_loss = false;
  };

  Node& node(int rank) { return nodes_[static_cast<std::size_t>(rank)]; }
  ResponseCache& cache_of(int rank) { return caches_[alike_ ? 0 : static_cast<std::size_t>(rank)]; }

  void begin_round();
  Round finish_round();

  // A rank's part in a round.
  void announce(int rank);
  Amount send(int rank, Envelope& envelope);
  SubtreeMessage statement_of(int rank);
  void post(int from, int to, Envelope envelope, std::size_t bytes, TimePoint ready);
  void arrive(int rank, Envelope envelope);
  void wake(int rank);
  void work(int rank);

  Duration take_in(int rank, const Envelope& envelope);
  Duration hear(int rank, const Envelope& envelope, std::vector<Bytes>& upward);
  MessageCombiner::Heard listen(int rank, int source, Bytes bytes);
  Duration read(int rank, const MessageCombiner::Heard& heard, std::vector<Bytes>& upward);
  Bytes shared_statement(int rank) const;

  Duration speak(int rank);
  Duration pass_up(int rank, std::vector<Bytes> upward, TimePoint ready);
  void set_timer(int rank);
  Duration respond();
  Duration spread(int rank, const std::shared_ptr<const Answer>& answer, TimePoint start);
  std::size_t apply(int rank, const Answer& answer);
  std::size_t remember(ResponseCache& cache, CoordinatorMessage message);

  Amount follow(int rank, ScheduleLock& lock, const std::vector<std::uint32_t>& slots);

  void hear_of_loss(int rank, int from);
  void for_neighbours(int rank, const std::function<void(int)>& body);

  const bool alike_;
  const bool rotated_;
  const std::vector<Request> operations_;
  NameMap<std::size_t> by_name_;  // operations_
  Topology topology_;
  Processor& processor_;
  EventQueue queue_;
  Network network_;
  std::vector<Node> nodes_;  // by rank
  std::unique_ptr<Coordinator> coordinator_;

  std::vector<ResponseCache> caches_;
  std::uint64_t remembered_ = 0;  // messages that are in the shared cache
  Bytes shared_;                  // what all ranks send in this round, as rank 0 says it

  // The round under way.
  TimePoint began_{};
  TimePoint finished_{};
  int unfinished_ = 0;  // ranks
  Amount announced_;
  std::size_t buckets_ = 0;
  std::size_t answer_bytes_ = 0;
  std::size_t performed_ = 0;  // operations, by the last answer that was taken in
  std::optional<Schedule> schedule_;
  Loss loss_;
};

}  // namespace hvd::simulation
