// Every interleaving of three ranks, three stages and one fault, with the real ScheduleLock on each rank and the rules
// of the window (ops/host/window.h) or of an exchange of votes (ops/algorithms/vote_exchange.h) between them: in a
// round every rank answers once, asks or declines, and hears all answers only when all are there.
//
// What must hold wherever it ends: all ranks have performed the same stages, each as often as the others; either all
// are locked, or none is; and nobody waits for an answer.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/control/schedule/schedule_lock.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

constexpr int kRanks = 3;
constexpr std::uint32_t kStages = 3;
const std::vector<std::uint32_t> kProgram{0, 1, 2, 0};  // what each rank submits, by slot: a step and some more
constexpr std::array<int, kStages> kPerformed{2, 1, 1};
constexpr std::size_t kFaulty = 0;      // they are all alike
constexpr std::uint32_t kUnknown = 77;  // an operation that is not in the schedule

enum class Fault { none, new_operation, skipped_operation, other_order, leaves, dies };

struct Rank {
  ScheduleLock lock;
  std::size_t submitted = 0;  // of its program
  std::size_t rounds = 0;     // that it has heard the end of
  char answer = '-';          // to the current round: '-', 'a'sks, 'd'eclines
  bool leaves = false;
  bool told = false;  // that the lock is to end, by itself or another rank
  bool dead = false;
  std::array<int, kStages> performed{};
  std::vector<std::uint32_t> pending;
};

struct ModelJob {
  std::array<Rank, kRanks> ranks;
  bool break_requested = false;
  std::vector<std::array<char, kRanks>> answers;  // by round

  // The state in a few characters, a number as one: it is compared a million times.
  std::string text() const {
    const auto digit = [](auto number) { return static_cast<char>('0' + static_cast<int>(number)); };
    std::string key(1, break_requested ? 'B' : '-');
    for (const Rank& rank : ranks) {
      key += {digit(rank.submitted), digit(rank.rounds), rank.answer, digit(rank.lock.state())};
      key += {rank.dead ? 'x' : '-', rank.leaves ? 'l' : '-', rank.told ? 't' : '-'};
      for (const int count : rank.performed) key += digit(count);
    }
    for (const auto& round : answers) key.append(round.begin(), round.end());
    return key;
  }
};

class Explorer {
 public:
  Explorer(Fault fault, std::size_t where) : fault_(fault), where_(where) {
    programs_.fill(kProgram);
    auto& program = programs_[kFaulty];
    const auto at = program.begin() + static_cast<std::ptrdiff_t>(where);
    if (fault == Fault::new_operation) program.insert(at, kUnknown);
    if (fault == Fault::skipped_operation) program.erase(at);
    if (fault == Fault::other_order) std::swap(*at, *(at + (where + 1 < program.size() ? 1 : -1)));
  }

  void explore() {
    ModelJob job;
    for (Rank& rank : job.ranks) rank.lock.propose(1, {{0}, {1}, {2}});
    visit(job);
  }

  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }
  const std::string& failure() const { return failure_; }

 private:
  void visit(const ModelJob& job) {
    if (!failure_.empty() || !seen_.insert(job.text()).second) return;
    bool moved = false;
    ModelJob next = job;  // a move that is not possible changes nothing
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (job.ranks[rank].dead) continue;
      for (const auto move :
           {&Explorer::submit, &Explorer::wish, &Explorer::tell, &Explorer::answer, &Explorer::hear}) {
        if (!(this->*move)(next, rank)) continue;
        moved = true;
        visit(next);
        next = job;
      }
    }
    if (!moved) check_end(job);
  }

  // The program submits. It goes on by itself: nothing waits for results, the worst case.
  bool submit(ModelJob& job, std::size_t r) {
    Rank& rank = job.ranks[r];
    const auto& program = programs_[r];
    const bool at_fault = r == kFaulty && rank.submitted == where_;
    if (at_fault && fault_ == Fault::dies) {
      rank.dead = true;
      return true;
    }
    if (at_fault && fault_ == Fault::leaves) {
      if (rank.leaves) return false;
      rank.leaves = true;
      request_end(job, rank, ScheduleLock::Cause::leaving);
      return true;
    }
    if (rank.submitted == program.size()) return false;
    const std::uint32_t slot = program[rank.submitted];
    // A name is in flight once.
    if (std::find(rank.pending.begin(), rank.pending.end(), slot) != rank.pending.end()) return false;
    ++rank.submitted;
    rank.pending.push_back(slot);
    if (rank.lock.active() && !rank.lock.submitted(slot)) request_end(job, rank, ScheduleLock::Cause::new_operation);
    return true;
  }

  // A rank may run out of time at any point: with a stage that the others do not come to, or with its own program.
  bool wish(ModelJob& job, std::size_t r) {
    Rank& rank = job.ranks[r];
    if (!rank.lock.active() || rank.lock.state() == ScheduleLock::State::breaking) return false;
    const bool late = rank.answer == 'a';
    const bool blocked = !rank.pending.empty() && rank.answer == '-' &&
                         rank.lock.next(rank.told).kind == ScheduleLock::Action::Kind::wait;
    if (!late && !blocked) return false;
    request_end(job, rank, late ? ScheduleLock::Cause::late : ScheduleLock::Cause::order);
    return true;
  }

  // News takes its time between hosts.
  bool tell(ModelJob& job, std::size_t r) {
    if (!job.break_requested || job.ranks[r].told) return false;
    return job.ranks[r].told = true;
  }

  bool answer(ModelJob& job, std::size_t r) {
    Rank& rank = job.ranks[r];
    if (rank.answer != '-') return false;
    const auto action = rank.lock.next(rank.told);
    if (action.kind == ScheduleLock::Action::Kind::wait) return false;
    rank.answer = action.kind == ScheduleLock::Action::Kind::perform ? 'a' : 'd';
    if (job.answers.size() <= rank.rounds) job.answers.push_back({'-', '-', '-'});
    job.answers[rank.rounds][r] = rank.answer;
    return true;
  }

  bool hear(ModelJob& job, std::size_t r) {
    Rank& rank = job.ranks[r];
    if (rank.answer == '-') return false;
    const auto& round = job.answers[rank.rounds];
    if (std::find(round.begin(), round.end(), '-') != round.end()) return false;
    const bool all = std::find(round.begin(), round.end(), 'd') == round.end();
    if (all) {
      const auto stage = static_cast<std::uint32_t>(rank.rounds % kStages);
      ++rank.performed[stage];
      rank.lock.performed();
      std::erase(rank.pending, stage);
    } else {
      rank.lock.ended();
    }
    rank.answer = '-';
    ++rank.rounds;
    return true;
  }

  static void request_end(ModelJob& job, Rank& rank, ScheduleLock::Cause cause) {
    if (!rank.lock.active()) return;
    rank.lock.request_end(cause);
    rank.told = job.break_requested = true;
  }

  void check_end(const ModelJob& job) {
    ++ends_;
    const Rank& first = job.ranks[0];
    const bool death = job.ranks[kFaulty].dead;
    for (const Rank& rank : job.ranks) {
      for (std::size_t stage = 0; stage < kStages; ++stage) {
        // Who has not heard the end of a round before a peer dies has performed it or fails with that peer.
        const int difference = std::abs(rank.performed[stage] - first.performed[stage]);
        if (difference > (death ? 1 : 0)) return fail(job, "stages were not performed alike");
      }
      if (death) continue;  // the others' waits end with the AbortFlag
      if (rank.answer != '-') return fail(job, "a rank waits for an answer");
      if (rank.lock.active() != first.lock.active()) return fail(job, "only some are locked");
      if (rank.lock.state() == ScheduleLock::State::breaking) return fail(job, "a break does not end");
    }
    if (fault_ == Fault::none && first.lock.active() && first.performed != kPerformed) {
      fail(job, "not everything was performed");
    }
  }

  void fail(const ModelJob& job, const std::string& what) { failure_ = what + ": " + job.text(); }

  const Fault fault_;
  const std::size_t where_;
  std::array<std::vector<std::uint32_t>, kRanks> programs_;
  std::unordered_set<std::string> seen_;
  std::size_t ends_ = 0;
  std::string failure_;
};

}  // namespace

TEST_CASE("schedule lock: every interleaving of three ranks and three stages, with one fault anywhere") {
  const Fault fault = GENERATE(Fault::none, Fault::new_operation, Fault::skipped_operation, Fault::other_order,
                               Fault::leaves, Fault::dies);
  std::size_t states = 0;
  for (std::size_t where = 0; where < kProgram.size(); ++where) {
    Explorer explorer(fault, where);
    explorer.explore();
    INFO("fault " << static_cast<int>(fault) << " at " << where << ": " << explorer.failure());
    REQUIRE(explorer.failure().empty());
    REQUIRE(explorer.ends() > 0);
    states += explorer.states();
  }
  CHECK(states > 1000);
}
