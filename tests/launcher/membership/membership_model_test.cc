// Every interleaving of a small elastic job with a few faults: the real Membership, and processes that start, arrive,
// train, notice that their epoch is over, finish, fail (some say so before they end), stop and wake, on hosts that are
// lost, come back, shrink, and cannot reach each other; and a job that is told to end early.
//
// What must hold: no process gets a place while another one of an older epoch still trains, unless that one was given
// up; an epoch has at least min_np processes and at most max_np; rank 0 has the job's state, and survivors keep their
// order; hosts that cannot reach each other are not kept together; nobody waits for ever, and once the job is over
// nobody waits at all.
#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/membership/membership.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr int kMaxEpochs = 12;

struct ModelProcess {
  enum class At { starting, waiting, training, failing, dismissed, ended };
  At at = At::starting;
  std::string host;
  int slot = 0;
  int epoch = 0;  // that it trains in
  bool has_state = false, given_up = false;
  auto operator<=>(const ModelProcess&) const = default;
  bool lives() const { return at != At::ended; }
};
using At = ModelProcess::At;

struct World {
  Membership membership;
  std::map<int, ModelProcess> processes{};
  std::map<std::string, int> hosts;
  std::set<int> broken{};  // epochs that a process has left or died in, so that the others notice
  int announced = 0;       // epoch
  int epoch = 0;
  std::vector<int> order{};  // of the last epoch
  int faults = 0;
  bool apart = false;    // two hosts cannot reach each other, so that no epoch with both gets further
  int epochs_apart = 0;  // that have begun since with both, in succession
  bool over = false, has_finished = false;
  bool state_has_finished = false;  // the last process that had the job's state
  bool ends_early = false, ends_announced = false, is_saved = false;
  TimePoint now{};
  auto operator<=>(const World&) const = default;
};

struct Model {
  MembershipOptions options;
  std::map<std::string, int> hosts;
  int faults;
  bool parts = false;  // whether two hosts may be unable to reach each other
};

class Explorer {
 public:
  explicit Explorer(Model model) : model_(std::move(model)) {}

  void explore() {
    World first{.membership = Membership(model_.options, TimePoint()), .hosts = model_.hosts, .faults = model_.faults};
    first.membership.hosts_changed({model_.hosts.begin(), model_.hosts.end()}, first.now);
    perform(first);
    push(first);
    while (!open_.empty() && failure_.empty()) {
      const World world = std::move(open_.back().first);
      story_ = std::move(open_.back().second);
      open_.pop_back();
      visit(world);
    }
  }

  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }
  int most_epochs() const { return most_epochs_; }
  int left_out() const { return left_out_; }
  const std::string& failure() const { return failure_; }

 private:
  void push(const World& world) {
    if (failure_.empty() && seen_.insert(world).second) open_.emplace_back(world, story_);
  }

  void expect(bool holds, const std::string& what) {
    if (!holds && failure_.empty()) failure_ = what + story_;
  }

  // Applies the event to a copy of the world.
  template <typename Event>
  void branch(const World& world, const std::string& name, Event event) {
    World next = world;
    const std::string before = std::exchange(story_, story_ + "; " + name);
    event(next);
    perform(next);
    check(next);
    push(next);
    story_ = before;
  }

  void visit(const World& world) {
    bool moves = false;
    for (const auto& [number, process] : world.processes) moves = branch_on_process(world, number, process) || moves;
    if (world.over) {
      ++ends_;
      return;
    }
    const auto deadline = world.membership.next_deadline();
    if (deadline && (!moves || world.faults > 0)) {
      branch(world, "the deadline", [&](World& next) {
        if (moves) --next.faults;
        next.now = std::max(next.now, *deadline);
        next.membership.time_passed(next.now);
        const auto then = next.membership.next_deadline();
        expect(!then || *then > next.now, "a deadline that is reached is never over");
      });
    }
    expect(moves || deadline.has_value(), "nobody moves, and nothing is waited for with a deadline");
    if (world.faults > 0) branch_on_hosts(world);
  }

  // What the process can do by itself, and what can happen to it. Returns whether it moves without a fault.
  bool branch_on_process(const World& world, int number, const ModelProcess& process) {
    const auto arrive = [&](World& next) {
      ModelProcess& self = next.processes.at(number);
      if (self.at == At::training) next.broken.insert(self.epoch);
      if (const int rank = unreachable_rank(next, self); rank >= 0) {
        next.membership.process_cannot_reach(number, rank);
      }
      if (self.given_up) self.has_state = false;
      self.at = At::waiting;
      self.given_up = false;
      next.membership.process_arrived(number, next.now);
    };
    const auto end = [&](World& next, ProcessEnd how) {
      ModelProcess& self = next.processes.at(number);
      if (self.at == At::training && how == ProcessEnd::failed) next.broken.insert(self.epoch);
      self.at = At::ended;
      next.membership.process_ended(number, how, "it has failed", next.now);
    };
    const std::string name = std::to_string(number);
    bool moves = false;
    if (process.at == At::starting && !world.over) {
      moves = true;
      branch(world, name + " arrives", arrive);
    }
    if (process.at == At::training && !world.over) {
      const bool is_broken = world.broken.contains(process.epoch) || unreachable_rank(world, process) >= 0;
      const bool is_told = world.announced == process.epoch;
      if (is_broken || (is_told && !world.ends_announced)) branch(world, name + " arrives", arrive);
      if (is_told && world.ends_announced && process.has_state && !process.given_up) {
        branch(world, name + " saves the state and arrives", [&](World& next) {
          next.is_saved = true;
          next.membership.process_preempted(number, next.now);
          arrive(next);
        });
      }
      if (!is_broken && !process.has_state && world.processes.at(world.order.front()).lives()) {
        branch(world, name + " has the state", [&](World& next) {
          next.processes.at(number).has_state = true;
          next.membership.process_synchronized(number, next.now);
        });
      }
      if (!is_broken && process.has_state && !(is_told && world.ends_announced) && !process.given_up) {
        branch(world, name + " finishes", [&](World& next) {
          next.has_finished = true;
          const auto has_state = [](const auto& entry) {
            return entry.second.lives() && entry.second.has_state && !entry.second.given_up;
          };
          next.state_has_finished = std::ranges::count_if(next.processes, has_state) == 1;
          end(next, ProcessEnd::finished);
        });
      }
      moves = true;  // it trains
    }
    if (process.at == At::failing) {
      moves = true;
      branch(world, name + " ends", [&](World& next) { end(next, ProcessEnd::failed); });
    }
    if (process.at == At::dismissed) {
      moves = true;
      branch(world, name + " leaves", [&](World& next) { end(next, ProcessEnd::dismissed); });
    }
    if (world.faults == 0 || !process.lives() || process.at == At::failing || world.over) return moves;
    branch(world, name + " fails", [&](World& next) {
      --next.faults;
      end(next, ProcessEnd::failed);
    });
    if (process.at == At::training && !process.given_up) {
      branch(world, name + " says that it fails", [&](World& next) {
        --next.faults;
        ModelProcess& self = next.processes.at(number);
        next.broken.insert(self.epoch);
        self.at = At::failing;
        self.has_state = false;
        next.membership.process_fails(number, "it fails", next.now);
      });
    }
    if ((process.at == At::training || process.at == At::starting) && !process.given_up) {
      branch(world, name + " is preempted", [&](World& next) {
        --next.faults;
        next.membership.process_preempted(number, next.now);
      });
    }
    return moves;
  }

  // In the process's epoch; -1: it reaches all others.
  static int unreachable_rank(const World& world, const ModelProcess& process) {
    if (!world.apart || process.at != At::training || process.epoch != world.epoch || process.given_up) return -1;
    const auto is_elsewhere = [&](int number) { return world.processes.at(number).host != process.host; };
    const auto found = std::ranges::find_if(world.order, is_elsewhere);
    return found == world.order.end() ? -1 : static_cast<int>(found - world.order.begin());
  }

  void branch_on_hosts(const World& world) {
    if (model_.parts && !world.apart) {
      branch(world, "the hosts cannot reach each other", [&](World& next) {
        --next.faults;
        next.apart = true;
      });
    }
    if (!world.ends_early) {
      branch(world, "the job is to end early", [&](World& next) {
        --next.faults;
        next.ends_early = true;
        next.membership.end_early(next.now);
      });
    }
    for (const auto& [name, slots] : model_.hosts) {
      branch(world, name + " is lost", [&, name = name](World& next) {
        --next.faults;
        next.hosts.erase(name);
        for (auto& [number, process] : next.processes) {
          if (process.host != name || !process.lives()) continue;
          if (process.at == At::training) next.broken.insert(process.epoch);
          process.at = At::ended;
        }
        next.membership.host_lost(name, "the host is lost", next.now);
      });
      for (const int changed : {slots - 1, slots, slots + 1}) {
        const auto found = world.hosts.find(name);
        if (found != world.hosts.end() && found->second == changed) continue;
        branch(world, name + " has " + std::to_string(changed), [&, name = name](World& next) {
          --next.faults;
          next.hosts[name] = changed;
          next.membership.hosts_changed({next.hosts.begin(), next.hosts.end()}, next.now);
        });
      }
    }
  }

  void perform(World& world) {
    for (const MembershipAction& action : world.membership.take_actions()) {
      expect(!world.over, "an action after the end");
      std::visit([&](const auto& each) { apply(world, each); }, action);
    }
  }

  void apply(World& world, const StartProcess& start) {
    expect(!world.ends_early, "a process is started for a job that ends");
    int on_host = 0;
    for (const auto& [number, process] : world.processes) {
      if (!process.lives() || process.host != start.host) continue;
      expect(process.slot != start.slot, "two processes have the same slot");
      if (!process.given_up && process.at != At::dismissed) ++on_host;
    }
    expect(on_host < world.hosts[start.host], "more processes than slots");
    expect(!world.processes.contains(start.process), "a number is used again");
    world.processes[start.process] = {.host = start.host, .slot = start.slot};
  }

  void apply(World& world, const BeginEpoch& begin) {
    const int size = static_cast<int>(begin.processes.size());
    expect(size >= (world.ends_early ? 1 : model_.options.min_np) && size <= model_.options.max_np,
           "an epoch of a forbidden size");
    expect(begin.epoch == world.epoch + 1, "epochs are not counted one by one");
    expect(begin.epoch <= kMaxEpochs, "epochs without end");
    for (const auto& [number, process] : world.processes) {
      expect(process.at != At::training || process.given_up, "an epoch begins while another one goes on");
    }
    std::vector<int> survivors;
    for (const int number : world.order) {
      const ModelProcess& process = world.processes.at(number);
      if (process.at == At::waiting && process.has_state) survivors.push_back(number);
    }
    survivors.resize(std::min(survivors.size(), begin.processes.size()));
    expect(std::equal(survivors.begin(), survivors.end(), begin.processes.begin()), "survivors lose their ranks");
    world.epoch = begin.epoch;
    world.order = begin.processes;
    const std::string& first = world.processes.at(world.order.front()).host;
    const auto is_on_first = [&](int number) { return world.processes.at(number).host == first; };
    const bool is_apart = world.apart && !std::ranges::all_of(world.order, is_on_first);
    world.epochs_apart = is_apart ? world.epochs_apart + 1 : 0;
    expect(world.epochs_apart <= kMaxFailedEpochs * (1 + model_.faults), "hosts that are apart stay together");
    for (const int number : begin.processes) {
      ModelProcess& process = world.processes.at(number);
      expect(process.at == At::waiting, "a place for a process that does not wait");
      process.at = At::training;
      process.epoch = begin.epoch;
      process.has_state = process.has_state || begin.epoch == 1;
    }
    expect(world.processes.at(begin.processes.front()).has_state, "rank 0 has no state");
    most_epochs_ = std::max(most_epochs_, world.epoch);
  }

  void apply(World& world, const AnnounceChange& change) {
    expect(change.epoch == world.epoch && world.announced != world.epoch, "an announcement out of turn");
    expect(change.adds || change.removes || change.ends, "an announcement of nothing");
    expect(change.ends == world.ends_early, "an announcement of the wrong kind");
    world.announced = change.epoch;
    world.ends_announced = change.ends;
  }

  void apply(World& world, const BreakEpoch& broken) { world.broken.insert(broken.epoch); }

  void apply(World& world, const ExpelProcess& expelled) { world.processes.at(expelled.process).given_up = true; }

  void apply(World& world, const LeaveOutHost& left_out) {
    expect(world.apart && left_out.host != left_out.other, "a host is left out that all others reach");
    ++left_out_;
  }

  void apply(World& world, const DismissProcess& dismissed) {
    ModelProcess& process = world.processes.at(dismissed.process);
    expect(process.at == At::waiting, "a process is dismissed that does not wait");
    process.at = At::dismissed;
  }

  void apply(World& world, const EndJob& end) {
    world.over = true;
    expect(world.has_finished || !end.failure.empty() || end.early, "the job has finished, but no process has");
    expect(!world.state_has_finished || end.failure.find("is gone") == std::string::npos, "who has finished is lost");
    const bool is_kept = world.is_saved || world.epoch == 0;
    expect(!end.early || (world.ends_early && is_kept && end.failure.empty()), "an early end without its state");
    const auto waits = [](const auto& entry) { return entry.second.at == At::waiting; };
    expect(std::ranges::none_of(world.processes, waits), "a process waits after the end");
  }

  void check(const World& world) {
    if (world.over) return;
    int training = 0, waiting = 0, starting = 0;
    for (const auto& [number, process] : world.processes) {
      if (process.at == At::training && process.epoch == world.epoch && !process.given_up) ++training;
      if (process.at == At::waiting) ++waiting;
      if (process.at == At::starting) ++starting;
    }
    if (!world.membership.running()) return expect(world.membership.next_deadline().has_value(), "a wait without end");
    if (world.has_finished) return;
    if (world.ends_early) return expect(world.announced == world.epoch, "nobody is told that the job ends");
    expect(training >= model_.options.min_np, "fewer than min_np train");
    const bool is_told = world.announced == world.epoch;
    const bool settles = starting > 0 && world.membership.next_deadline().has_value();
    expect(is_told || settles || waiting == 0 || training >= model_.options.max_np,
           "a newcomer waits, and nobody is told");
  }

  const Model model_;
  std::set<World> seen_;
  std::vector<std::pair<World, std::string>> open_;  // with what has led there
  std::string story_;
  std::size_t ends_ = 0;
  int most_epochs_ = 0;
  int left_out_ = 0;  // hosts, in all worlds together
  std::string failure_;
};

int explore(const Model& model, int least_epochs) {
  Explorer explorer(model);
  explorer.explore();
  INFO(explorer.states() << " states, " << explorer.ends() << " ends, " << explorer.most_epochs() << " epochs");
  CHECK(explorer.failure() == "");
  CHECK(explorer.ends() > 0);
  CHECK(explorer.most_epochs() >= least_epochs);
  return explorer.left_out();
}

}  // namespace

TEST_CASE("membership: every interleaving of two processes and two faults") {
  explore({.options = {.num_proc = 2, .min_np = 1, .max_np = 2, .cooldown_min = 10s, .cooldown_max = 20s},
           .hosts = {{"a", 1}, {"b", 1}},
           .faults = 2},
          3);
}

TEST_CASE("membership: every interleaving of three processes, of which one is needed") {
  explore({.options = {.num_proc = 2, .min_np = 1, .max_np = 3, .cooldown_min = 10s, .cooldown_max = 20s},
           .hosts = {{"a", 2}, {"b", 1}},
           .faults = 1},
          3);
}

TEST_CASE("membership: every interleaving of three processes, of which two are needed") {
  explore({.options = {.num_proc = 3, .min_np = 2, .max_np = 3, .cooldown_min = 10s, .cooldown_max = 20s},
           .hosts = {{"a", 2}, {"b", 1}},
           .faults = 1},
          3);
}

TEST_CASE("membership: every interleaving with a spare and a limit of resets") {
  explore({.options = {.num_proc = 2,
                       .min_np = 2,
                       .max_np = 2,
                       .spares = 1,
                       .reset_limit = 1,
                       .cooldown_min = 10s,
                       .cooldown_max = 20s},
           .hosts = {{"a", 2}, {"b", 1}},
           .faults = 1},
          2);
}

namespace {

// One of two hosts is left out if the other is enough; the job ends if both are needed.
void explore_hosts_apart(int faults) {
  for (const int min_np : {1, 2}) {
    const int left_out =
        explore({.options = {.num_proc = 2, .min_np = min_np, .max_np = 2, .cooldown_min = 10s, .cooldown_max = 20s},
                 .hosts = {{"a", 1}, {"b", 1}},
                 .faults = faults,
                 .parts = true},
                2);
    const bool is_one_enough = min_np == 1 || faults > 1;  // for a job that ends early it is
    CHECK((left_out > 0) == is_one_enough);
  }
}

}  // namespace

TEST_CASE("membership: every interleaving of two hosts that cannot reach each other") { explore_hosts_apart(1); }

// Minutes, and gigabytes.
TEST_CASE("membership: every interleaving of three processes and two faults", "[.long]") {
  for (const int min_np : {2, 1}) {
    explore({.options = {.num_proc = 2, .min_np = min_np, .max_np = 3, .cooldown_min = 10s, .cooldown_max = 20s},
             .hosts = {{"a", 2}, {"b", 1}},
             .faults = 2},
            4);
  }
}

TEST_CASE("membership: every interleaving of two hosts that cannot reach each other, and another fault", "[.long]") {
  explore_hosts_apart(2);
}
