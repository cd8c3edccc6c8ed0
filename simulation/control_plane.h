// Simulates the control plane of a whole job on one virtual clock: the real classes at every rank over a simulated
// network.
//
// Every rank has its ControlNode, a ResponseCache and a ScheduleLock; messages are those of wire.h. A rank's processor
// does one thing at a time: it processes all messages that have arrived, and then sends what is due, as Negotiator
// does.
//
// A round begins on all ranks at once: each submits all its operations, announces them, and is done when it has
// received the responses for all of them. The collectives themselves are not simulated.
//
// If Job::alike is set, ranks with equal state and messages share one cache and one encoded message; otherwise 100,000
// ranks would not fit into memory. All other objects exist per rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/bootstrap/topology.h"
#include "core/control/control_node.h"
#include "core/control/protocol/response_cache.h"
#include "core/net/frame.h"
#include "core/operation/operation_spec.h"
#include "simulation/network.h"
#include "simulation/processor.h"

namespace hvd::simulation {

struct Job {
  int ranks = 8;
  int ranks_per_host = 8;
  std::vector<OperationSpec> operations;  // submitted by every rank in each round
  NetworkParameters network;
  std::uint64_t seed = 1;
  bool alike = true;
  bool rotated = false;  // unless alike: each rank announces in a different order
};

struct Round {
  Duration time{};           // from the submissions until the last rank knows what to perform
  std::size_t requests = 0;  // announced by each rank as whole requests
  std::size_t hits = 0;      // and by cache slot
  std::size_t buckets = 0;
  std::size_t request_bytes = 0;   // of the requests that a rank sends
  std::size_t response_bytes = 0;  // of the last response list
  bool locks = false;              // the round ends with a schedule
  Traffic root{};                  // of rank 0
  Traffic max{};                   // maximum over the ranks, of each number separately
  std::int64_t messages = 0;       // of all ranks, between hosts
};

// How fast the ranks learn of a lost rank.
struct Loss {
  int rank = 0;
  int informed = 0;  // number of ranks that learned of it; all others should
  Duration first{};  // after the loss
  Duration last{};
};

class ControlPlane {
 public:
  ControlPlane(const Job& job, Processor& processor);

  int hosts() const { return static_cast<int>(topology_.hosts.size()); }
  // The maximum number of neighbours on other hosts that a rank has.
  int max_neighbours();

  // Simulates one round of negotiation. Throws Internal if it does not complete.
  Round negotiate();

  // After a round that locks: every rank performs the schedule once.
  Round follow_schedule();

  // A rank dies in the middle of a round, `after` its beginning. The job has ended afterwards.
  Loss lose(int rank, Duration after);

 private:
  struct EncodedResponse {
    Bytes bytes;
    ResponseList message;
  };
  // A message that arrives at a rank, or the rank's own one.
  struct Envelope {
    int from = 0;
    std::shared_ptr<const Bytes> requests{};  // null without a response: the message that all ranks send in this round
    std::shared_ptr<const EncodedResponse> response{};
  };
  struct Rank {
    ControlNode node;
    std::vector<Envelope> inbox{};
    std::size_t taken = 0;  // number of processed inbox entries
    bool busy = false;      // its next work is in the event queue
    TimePoint free_at{};
    Deadline timer = Deadline::max();  // for messages that are held back
    std::size_t open = 0;              // number of operations
    bool knows_of_loss = false;
  };
  struct Port;

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  ResponseCache& cache_of(int rank) { return caches_[job_.alike ? 0 : static_cast<std::size_t>(rank)]; }

  void begin_round();
  Round finish_round();

  // A rank's part of a round.
  SubtreeMessage message_of(int rank);
  void announce(int rank);
  void arrive(int rank, Envelope envelope);
  void wake(int rank);
  void work(int rank);
  Duration receive(int rank, const Envelope& envelope);
  Duration send_up(int rank);
  Duration respond();
  Duration spread(Port& port, const std::shared_ptr<const EncodedResponse>& response);
  std::size_t apply(int rank, const EncodedResponse& response);
  std::size_t remember(ResponseCache& cache, ResponseList message);

  std::vector<std::vector<std::uint32_t>> stages_of(const Schedule& schedule);

  void learn_of_loss(int rank, int from);
  void for_neighbours(int rank, const std::function<void(int)>& body);

  const Job job_;
  NameMap<const OperationSpec*> by_name_;  // of the job's operations
  Topology topology_;
  Processor& processor_;
  EventQueue queue_;
  Network network_;
  std::vector<Rank> ranks_;

  std::vector<ResponseCache> caches_;
  std::uint64_t remembered_ = 0;  // number of messages in the shared cache
  Bytes shared_;                  // the message that all ranks send in this round, as encoded by rank 0

  // The current round.
  TimePoint began_{};
  Round round_;
  int unfinished_ = 0;  // number of ranks
  Amount announced_;
  std::size_t performed_ = 0;  // number of operations in the last processed response
  std::optional<Schedule> schedule_;
  Loss loss_;
};

}  // namespace hvd::simulation
