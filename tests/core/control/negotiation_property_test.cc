// The control nodes of a job's ranks, with caches of their own, and messages that are cut and delayed at random.
//
// Each rank submits each name a number of times (its rounds) and then joins; that is an epoch. What a rank asks for in
// a round is a function of name, round and rank, so that the test knows beforehand how each round must end.
#include <deque>
#include <map>
#include <random>
#include <set>

#include "core/base/error.h"
#include "core/control/control_node.h"
#include "tests/core/control/specs.h"
#include "tests/support/catch.h"
#include "tests/support/random_bits.h"
#include "tests/support/sanitized.h"

using namespace hvd;
using hvd::testing::mix;

namespace {

struct Scenario {
  int size;
  int names;
  int rounds;
  std::size_t cache_capacity;
  int percent_changed;  // rounds with a shape of their own, so that the cache misses
  int percent_bad;      // rounds in which one rank disagrees
  bool uneven;          // ranks have different numbers of rounds
  int epochs;           // each ended by a join of all
  int ranks_per_host = 64;
  int radix = kControlRadix;
};

constexpr Duration kTreeDelay = 20ms;

class Simulation {
 public:
  Simulation(const Scenario& scenario, unsigned seed)
      : scenario_(scenario), seed_(seed), random_(seed), ranks_(ranks_of(scenario)) {}

  void run() {
    for (epoch_ = 0; epoch_ < scenario_.epochs; ++epoch_) {
      for (Rank& rank : ranks_) {
        rank.submitted.clear();
        rank.joined = false;
        rank.all_joined = false;
      }
      std::size_t steps = 0;
      while (!epoch_done()) {
        REQUIRE(++steps < 2'000'000);
        step();
      }
      check_outcomes();
    }
  }

  std::size_t cached_entries() const { return cached_entries_; }
  std::size_t stale_hits() const { return stale_hits_; }
  int largest_statement() const { return largest_statement_; }
  std::size_t common_messages() const { return common_messages_; }

 private:
  struct Rank {
    ControlNode node;
    ResponseCache cache{};
    std::vector<OperationSpec> unsent{};
    std::deque<Bytes> to_parent{};
    std::deque<Bytes> from_parent{};
    std::map<std::string, OperationSpec> pending{};
    std::map<std::string, int> submitted{};               // rounds of this epoch
    std::vector<std::string> executed{};                  // in order: name and shape
    std::map<std::string, std::vector<bool>> outcomes{};  // by name: did the round execute?
    bool joined = false;
    bool all_joined = false;
  };

  // Of a rank's node: its messages wait until they are delivered.
  struct Port {
    Simulation& simulation;
    int rank;

    void send(int to, const Bytes& message) {
      Rank& self = simulation.at(rank);
      (to == self.node.tree().parent ? self.to_parent : simulation.at(to).from_parent).push_back(message);
    }
    static void perform(NodeWork, auto body) { body(); }
    void read(NodeWork work, const SubtreeMessage& message) {
      if (work == NodeWork::coordinate) simulation.note(message);
    }
  };

  struct Contributions {
    int announced = 0;  // by the response
    int made = 0;       // ranks that had asked
  };

  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  std::uint64_t hash(int a, int b, int c) const {
    return mix(mix(mix(mix(seed_) + static_cast<std::uint64_t>(a)) + static_cast<std::uint64_t>(b)) +
               static_cast<std::uint64_t>(c));
  }
  std::string name_of(int name) const { return "tensor" + std::to_string(name); }

  // The same for all names of a rank: otherwise two ranks could wait for each other before either may join.
  int rounds_of(int rank) const {
    if (!scenario_.uneven) return scenario_.rounds;
    return static_cast<int>(hash(rank, 0, 1000 + epoch_) % static_cast<unsigned>(scenario_.rounds + 1));
  }
  bool is_bad(int name, int round) const {
    return hash(name, round, 2000 + epoch_) % 100 < static_cast<unsigned>(scenario_.percent_bad);
  }
  Collective collective_of(int name) const {
    if (name % 3 == 0) return Collective::allreduce;
    return name % 3 == 1 ? Collective::allgather : Collective::barrier;
  }
  OperationSpec request_of(int rank, int name, int round) const {
    const bool changed = hash(name, round, 3000 + epoch_) % 100 < static_cast<unsigned>(scenario_.percent_changed);
    const std::int64_t shape = changed ? 100 + round : 1;
    OperationSpec spec = make_spec(collective_of(name), name_of(name), {shape, 2});
    if (spec.collective == Collective::allgather) spec.tensors[0].shape[0] += rank;
    const auto odd = static_cast<int>(hash(name, round, 4000 + epoch_) % static_cast<unsigned>(scenario_.size));
    if (is_bad(name, round) && rank == odd)
      spec = make_spec(spec.collective == Collective::barrier ? Collective::allreduce : spec.collective, name_of(name),
                       {1, 3});
    return spec;
  }

  // Ranks are spread over the hosts in turn, so that a subtree's are not one range.
  static std::vector<Rank> ranks_of(const Scenario& scenario) {
    const int hosts = (scenario.size + scenario.ranks_per_host - 1) / scenario.ranks_per_host;
    std::vector<RankIdentity> identities;
    for (int rank = 0; rank < scenario.size; ++rank) {
      identities.push_back({.host_key = std::to_string(rank % hosts), .hostname = "host"});
    }
    const CoordinatorOptions options{.size = scenario.size, .cache_capacity = scenario.cache_capacity};
    std::vector<Rank> ranks;
    for (int rank = 0; rank < scenario.size; ++rank) {
      ControlTree tree = make_control_tree(make_topology(rank, identities), scenario.radix);
      ranks.push_back({.node = ControlNode(rank, std::move(tree), options, describe_test_rank, kTreeDelay)});
    }
    return ranks;
  }

  void step() {
    const int rank = pick(scenario_.size);
    now_ += std::chrono::milliseconds(pick(2));
    switch (pick(7)) {
      case 0:
      case 1: return submit(rank);
      case 2: return flush(rank);
      case 3: return deliver(rank);
      case 4: return receive_answer(rank);
      case 5: return send_up(rank);
      default: return respond();
    }
  }

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void submit(int index) {
    Rank& rank = at(index);
    if (rank.joined) return;
    std::vector<int> possible;
    bool finished = true;
    for (int name = 0; name < scenario_.names; ++name) {
      const bool more = rank.submitted[name_of(name)] < rounds_of(index);
      finished = finished && !more;
      if (more && !rank.pending.contains(name_of(name))) possible.push_back(name);
    }
    if (finished) {
      rank.joined = true;
      rank.unsent.push_back(join());
    } else if (!possible.empty()) {
      const int name = possible[random_() % possible.size()];
      OperationSpec spec = request_of(index, name, rank.submitted[name_of(name)]++);
      rank.unsent.push_back(spec);
      rank.pending.emplace(name_of(name), std::move(spec));
    }
  }

  Port port_of(int rank) { return {*this, rank}; }

  void flush(int index) {
    Rank& rank = at(index);
    if (rank.unsent.empty()) return;
    std::vector<const OperationSpec*> specs;
    for (const OperationSpec& spec : rank.unsent) specs.push_back(&spec);
    Port port = port_of(index);
    rank.node.announce(port, rank.node.message_of(specs, rank.cache, false), now_);
    rank.unsent.clear();
  }

  void deliver(int index) {
    Rank& rank = at(index);
    if (rank.to_parent.empty()) return;
    const int parent = rank.node.tree().parent;
    Port port = port_of(parent);
    at(parent).node.receive(port, index, std::move(rank.to_parent.front()), now_);
    rank.to_parent.pop_front();
  }

  void note(const SubtreeMessage& message) {
    for (const RankMessage& part : message.messages) {
      largest_statement_ = std::max(largest_statement_, part.ranks.count());
      if (scenario_.size > 1 && part.ranks.count() == scenario_.size) ++common_messages_;
      for (const std::uint32_t slot : part.hits) {
        if (last_fill_[slot] > part.applied) ++stale_hits_;
      }
    }
  }

  void send_up(int index) {
    Port port = port_of(index);
    at(index).node.send_up(port, now_);
  }

  void receive_answer(int index) {
    Rank& rank = at(index);
    if (rank.from_parent.empty()) return;
    const Bytes bytes = std::move(rank.from_parent.front());
    rank.from_parent.pop_front();
    Port port = port_of(index);
    rank.node.forward(port, bytes, now_);
    apply(index, decode_response_list(bytes));
  }

  void respond() {
    const auto responses = at(0).node.coordinator()->respond(now_);
    if (!responses) return;
    for (const auto& entry : responses->entries) {
      if (!entry.response) {
        ++cached_entries_;
      } else if (entry.response->slot != kNoSlot) {
        CHECK(entry.response->slot < scenario_.cache_capacity);
        last_fill_[entry.response->slot] = responses->number;
      }
    }
    Port port = port_of(0);
    at(0).node.forward(port, encode(*responses), now_);
    apply(0, *responses);
  }

  void apply(int index, const ResponseList& responses) {
    Rank& rank = at(index);
    rank.node.accept(responses);
    for (const auto& entry : responses.entries) {
      const auto shared = rank.cache.resolve(entry);
      const Response& response = *shared;
      if (!entry.response) REQUIRE(response.contributing == scenario_.size);
      if (response.kind == Response::Kind::execute) {
        const auto own = rank.pending.find(response.spec.name);
        if (entry.response) rank.cache.store(shared, own == rank.pending.end() ? nullptr : &own->second);
        execute(index, response);
      } else if (response.kind == Response::Kind::error) {
        for (const auto failed : response.ranks) {
          if (failed != index) continue;
          REQUIRE(rank.pending.erase(response.spec.name) == 1);
          rank.outcomes[response.spec.name].push_back(false);
        }
      } else {
        REQUIRE(response.kind == Response::Kind::all_joined);
        REQUIRE(rank.joined);
        REQUIRE_FALSE(rank.all_joined);
        REQUIRE(rank.pending.empty());
        rank.all_joined = true;
      }
    }
    compare_caches(rank);
  }

  void execute(int index, const Response& response) {
    Rank& rank = at(index);
    const OperationSpec& spec = response.spec;
    const auto own = rank.pending.find(spec.name);
    Contributions& contributions = contributions_[rank.executed.size()];
    contributions.announced = response.contributing;
    if (own != rank.pending.end()) ++contributions.made;
    const bool has_rows = spec.collective == Collective::allgather;
    const std::int64_t rows = has_rows ? response.rows.at(0).at(static_cast<std::size_t>(index)) : 0;
    if (own == rank.pending.end()) {
      REQUIRE(rank.joined);
      REQUIRE(response.contributing < scenario_.size);
      REQUIRE(rows == 0);
    } else {
      if (has_rows) {
        REQUIRE(rows == own->second.tensors[0].shape[0]);
      } else {
        REQUIRE(spec == own->second);
      }
      rank.pending.erase(own);
      rank.outcomes[spec.name].push_back(true);
    }
    rank.executed.push_back(spec.name + (spec.tensors.empty() ? "" : to_string(spec.tensors[0].shape)));
  }

  // After message n every rank's cache holds the same.
  void compare_caches(const Rank& rank) {
    std::vector<std::shared_ptr<const Response>> held;
    for (std::uint32_t slot = 0; slot < scenario_.cache_capacity; ++slot) {
      if (!last_fill_.contains(slot)) break;
      try {
        held.push_back(rank.cache.at(slot));
      } catch (const Internal&) {
        held.push_back(nullptr);
      }
    }
    while (!held.empty() && !held.back()) held.pop_back();
    const auto [known, fresh] = caches_.try_emplace(rank.node.applied(), held);
    if (fresh) return;
    REQUIRE(known->second.size() == held.size());
    for (std::size_t slot = 0; slot < held.size(); ++slot) {
      REQUIRE((held[slot] == nullptr) == (known->second[slot] == nullptr));
      if (held[slot]) REQUIRE(*held[slot] == *known->second[slot]);
    }
  }

  bool epoch_done() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.all_joined; });
  }

  void check_outcomes() {
    for (const auto& [execution, contributions] : contributions_) CHECK(contributions.made == contributions.announced);
    for (int index = 0; index < scenario_.size; ++index) {
      Rank& rank = at(index);
      CHECK(rank.executed == ranks_[0].executed);
      for (int name = 0; name < scenario_.names; ++name) {
        std::vector<bool> expected;
        for (int round = 0; round < rounds_of(index); ++round) expected.push_back(agrees(name, round));
        CHECK(rank.outcomes[name_of(name)] == expected);
      }
      rank.outcomes.clear();
    }
  }

  // Do all ranks that take part in this round ask for the same?
  bool agrees(int name, int round) const {
    std::optional<OperationSpec> first;
    for (int rank = 0; rank < scenario_.size; ++rank) {
      if (rounds_of(rank) <= round) continue;
      const OperationSpec spec = request_of(rank, name, round);
      if (!first) first = spec;
      if (!find_disagreement(*first, 0, spec, 1, describe_test_rank).empty()) return false;
    }
    return true;
  }

  const Scenario scenario_;
  const unsigned seed_;
  std::mt19937 random_;
  std::vector<Rank> ranks_;
  TimePoint now_{};
  int largest_statement_ = 0;  // ranks
  std::size_t common_messages_ = 0;
  int epoch_ = 0;
  std::size_t cached_entries_ = 0;
  std::size_t stale_hits_ = 0;
  std::map<std::size_t, Contributions> contributions_;  // by execution, which all ranks count alike
  std::map<std::uint32_t, std::uint64_t> last_fill_;    // slot -> message
  std::map<std::uint64_t, std::vector<std::shared_ptr<const Response>>> caches_;  // by message
};

}  // namespace

TEST_CASE(
    "However messages are cut and delayed, every submission has its one right answer, in the same order everywhere") {
  const Scenario scenarios[] = {
      {1, 3, 6, 2, 20, 0, false, 2},         {2, 6, 8, 16, 10, 0, false, 2},        {3, 6, 8, 16, 10, 30, false, 2},
      {4, 8, 8, 3, 20, 20, false, 2},        {4, 8, 8, 0, 20, 20, false, 2},        {8, 6, 6, 4, 10, 20, false, 2},
      {3, 5, 8, 3, 10, 0, true, 3},          {5, 6, 8, 4, 10, 20, true, 3},         {8, 5, 5, 16, 0, 0, true, 2},
      {2, 12, 30, 3, 5, 0, false, 1},        {8, 6, 6, 16, 10, 20, true, 2, 2, 16}, {9, 6, 6, 4, 20, 20, true, 2, 1, 2},
      {15, 4, 5, 16, 10, 20, true, 2, 2, 2}, {15, 6, 10, 3, 10, 0, false, 1, 3, 1}, {4, 1, 60, 16, 0, 0, false, 1, 2},
  };
  std::size_t cached_entries = 0;
  std::size_t stale_hits = 0;
  int largest_statement = 0;
  std::size_t common_messages = 0;
  const unsigned seeds = hvd::testing::kSanitized ? 2 : 25;
  for (const Scenario& scenario : scenarios) {
    for (unsigned seed = 0; seed < seeds; ++seed) {
      CAPTURE(scenario.size, scenario.names, scenario.cache_capacity, scenario.uneven, seed);
      Simulation simulation(scenario, seed);
      simulation.run();
      cached_entries += simulation.cached_entries();
      stale_hits += simulation.stale_hits();
      largest_statement = std::max(largest_statement, simulation.largest_statement());
      common_messages += simulation.common_messages();
    }
  }
  // The scenarios reach what they are for.
  CHECK(cached_entries > 40 * seeds);
  CHECK(stale_hits > 4 * seeds);
  CHECK(largest_statement > 2);
  CHECK(common_messages >= seeds);
}
