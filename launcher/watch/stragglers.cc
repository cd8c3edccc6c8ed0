#include "launcher/watch/rank_status.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "launcher/watch/job_end.h"

namespace hvd::launcher {
namespace {

using State = OperationStatus::State;
using Ranks = std::vector<const StatusOfRank*>;

constexpr Duration kStartGracePeriod = 500ms;  // ranks rarely start at the same moment
constexpr Duration kMoment = 500ms;
constexpr std::string_view kStalled = "stalled: ";  // how the stall inspector's warnings begin

std::string operation_text(const OperationStatus& operation) {
  return printable(operation.what) + " '" + printable(operation.name) + "'";
}

std::string number_text(const OperationStatus& operation) {
  return "(operation " + std::to_string(operation.sequence) + " of set " + std::to_string(operation.process_set) + ")";
}

std::string numbers_text(const Ranks& ranks) {
  std::vector<int> numbers;
  for (const StatusOfRank* rank : ranks) numbers.push_back(rank->rank);
  std::sort(numbers.begin(), numbers.end());
  return list_ranks(numbers);
}

// "rank 3 (host h2)" or "ranks 3-5".
std::string culprits_text(const Ranks& ranks) {
  const std::string text = numbers_text(ranks);
  return ranks.size() == 1 ? text + " (host " + printable(ranks.front()->host) + ")" : text;
}

const char* has(const Ranks& ranks) { return ranks.size() == 1 ? "has" : "have"; }
const char* is(const Ranks& ranks) { return ranks.size() == 1 ? "is" : "are"; }
const char* does(const Ranks& ranks) { return ranks.size() == 1 ? "does" : "do"; }

// "; it is at train.py:48 in load_batch", for the first rank whose place is known.
std::string place_text(const Ranks& ranks) {
  for (const StatusOfRank* rank : ranks) {
    if (!rank->status || !rank->status->frame) continue;
    const std::string who = ranks.size() == 1 ? "it" : "rank " + std::to_string(rank->rank);
    return "; " + who + " is at " + printable(to_string(*rank->status->frame));
  }
  return "";
}

const OperationStatus* find(const StatusOfRank& rank, const OperationStatus& operation) {
  if (!rank.status) return nullptr;
  const auto& open = rank.status->open;
  const auto found = std::find_if(open.begin(), open.end(), [&](const OperationStatus& own) {
    return own.process_set == operation.process_set && own.name == operation.name && own.what == operation.what;
  });
  return found == open.end() ? nullptr : &*found;
}

// Whether the rank is in the operation's process set, and has neither submitted nor finished the operation. Without a
// record of the set, its membership is unknown (except for set 0).
bool lacks(const StatusOfRank& rank, const OperationStatus& operation) {
  if (!rank.status || find(rank, operation) != nullptr) return false;
  const auto& sets = rank.status->sets;
  const auto set = std::find_if(sets.begin(), sets.end(),
                                [&](const ProcessSetStatus& one) { return one.process_set == operation.process_set; });
  if (set == sets.end()) return operation.process_set == 0;
  // Only the oldest open operations are listed; the operation may be among those that are only counted.
  if (rank.status->more_open > 0 && set->submitted >= operation.sequence) return false;
  return set->done < operation.sequence;
}

// An operation that ranks wait for: the ranks that have submitted it, that lack it, and that have not answered.
struct Wait {
  const OperationStatus* operation = nullptr;  // of the rank that has waited longest
  Ranks in_it, lacking, unknown;
};

Wait wait_for(const OperationStatus& operation, const std::vector<StatusOfRank>& ranks) {
  Wait wait{.operation = &operation, .in_it = {}, .lacking = {}, .unknown = {}};
  for (const StatusOfRank& rank : ranks) {
    const OperationStatus* own = find(rank, operation);
    if (own != nullptr && own->age > wait.operation->age) wait.operation = own;
    if (own != nullptr) wait.in_it.push_back(&rank);
    if (lacks(rank, operation)) wait.lacking.push_back(&rank);
    if (!rank.status) wait.unknown.push_back(&rank);
  }
  return wait;
}

// A join waits for as long as other ranks have work: what these wait for says more.
bool is_join(const Wait& wait) { return wait.operation->what == collective_name(Collective::join); }

// The longest wait first, joins last; each operation once.
std::vector<Wait> all_waits(const std::vector<StatusOfRank>& ranks, Duration stall_time) {
  std::vector<Wait> waits;
  for (const StatusOfRank& rank : ranks) {
    if (!rank.status) continue;
    for (const OperationStatus& operation : rank.status->open) {
      const bool known = std::any_of(waits.begin(), waits.end(), [&](const Wait& wait) {
        return std::find(wait.in_it.begin(), wait.in_it.end(), &rank) != wait.in_it.end() &&
               find(rank, *wait.operation) == &operation;
      });
      if (known) continue;
      Wait wait = wait_for(operation, ranks);
      if (wait.operation->age >= stall_time) waits.push_back(std::move(wait));
    }
  }
  std::stable_sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) {
    return is_join(a) != is_join(b) ? is_join(b) : a.operation->age > b.operation->age;
  });
  return waits;
}

std::string waited_text(const Wait& wait, const Ranks& who) {
  return numbers_text(who) + " " + has(who) + " waited " + age_text(wait.operation->age);
}

Ranks only(const Ranks& ranks, const auto& condition) {
  Ranks result;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(result), condition);
  return result;
}

Ranks with_status(const std::vector<StatusOfRank>& ranks, const auto& condition) {
  Ranks result;
  for (const StatusOfRank& rank : ranks) {
    if (rank.status && condition(*rank.status)) result.push_back(&rank);
  }
  return result;
}

// ---- The cases: each returns its sentence, or an empty string if it does not apply

std::string stopped_clause(const Ranks& stopped) {
  return culprits_text(stopped) + " " + is(stopped) + " stopped, as by SIGSTOP or Ctrl-Z; ";
}

std::string stopped_text(const std::vector<StatusOfRank>& ranks, const Wait& wait) {
  const Ranks stopped = with_status(ranks, [](const RankStatus& status) { return status.stopped; });
  const Ranks others = only(wait.in_it, [](const StatusOfRank* rank) { return !rank->status->stopped; });
  if (stopped.empty() || others.empty()) return "";
  return stopped_clause(stopped) + waited_text(wait, others) + " in " + operation_text(*wait.operation) + " " +
         number_text(*wait.operation);
}

// Ranks wait for others in init.
std::string not_met_text(const std::vector<StatusOfRank>& ranks) {
  const Ranks waiting =
      with_status(ranks, [](const RankStatus& status) { return status.initializing && !status.stopped; });
  Duration longest{};
  for (const StatusOfRank* rank : waiting) longest = std::max(longest, *rank->status->initializing);
  if (longest < kStartGracePeriod) return "";
  const std::string waited = numbers_text(waiting) + " " + has(waiting) + " waited " + age_text(longest);
  const Ranks stopped = with_status(ranks, [](const RankStatus& status) { return status.stopped; });
  if (!stopped.empty()) return stopped_clause(stopped) + waited + " in hvd.init()";
  const Ranks ended = with_status(ranks, [](const RankStatus& status) { return status.ended; });
  if (!ended.empty()) return culprits_text(ended) + " " + has(ended) + " ended; " + waited + " in hvd.init()";
  const Ranks missing = with_status(ranks, [](const RankStatus& status) { return !status.in_job; });
  if (missing.empty()) return "";
  return culprits_text(missing) + " " + has(missing) + " not called hvd.init() yet, in which " + waited +
         place_text(missing);
}

// Ranks have not submitted the operation, and have no open operation themselves: they are elsewhere in the script.
std::string not_submitted_text(const Wait& wait) {
  const Ranks busy = only(wait.lacking, [](const StatusOfRank* rank) { return rank->status->open.empty(); });
  if (busy.empty()) return "";
  return culprits_text(busy) + " " + has(busy) + " not submitted " + operation_text(*wait.operation) + " " +
         number_text(*wait.operation) + ", for which " + waited_text(wait, wait.in_it) + place_text(busy);
}

std::string different_operations_text(const Wait& wait) {
  for (const StatusOfRank* rank : wait.lacking) {
    for (const OperationStatus& own : rank->status->open) {
      if (own.process_set != wait.operation->process_set) continue;
      const Ranks others = only(wait.in_it, [&](const StatusOfRank* other) { return lacks(*other, own); });
      if (others.empty()) continue;
      return numbers_text(others) + " " + has(others) + " waited " + age_text(wait.operation->age) + " for " +
             operation_text(*wait.operation) + " " + number_text(*wait.operation) + ", but " + culprits_text({rank}) +
             " for " + operation_text(own) + " " + number_text(own) +
             ": the ranks do not submit the same operations in the same order" + place_text({rank});
    }
  }
  return "";
}

std::string no_answer_text(const Wait& wait) {
  if (wait.unknown.empty()) return "";
  return culprits_text(wait.unknown) + " " + (wait.unknown.size() == 1 ? "does" : "do") + " not answer; " +
         waited_text(wait, wait.in_it) + " in " + operation_text(*wait.operation) + " " + number_text(*wait.operation);
}

std::string not_performing_text(const Wait& wait) {
  const auto performs = [&](const StatusOfRank* rank) {
    return find(*rank, *wait.operation)->state == State::performs;
  };
  const Ranks active = only(wait.in_it, performs);
  const Ranks late =
      only(wait.in_it, [&](const StatusOfRank* rank) { return find(*rank, *wait.operation)->state == State::waits; });
  if (active.empty() || late.empty()) return "";
  return culprits_text(late) + " " + has(late) + " submitted " + operation_text(*wait.operation) + " " +
         number_text(*wait.operation) + " but " + does(late) + " not perform it, as " + numbers_text(active) + " " +
         has(active) + " done for " + age_text(wait.operation->age) + place_text(late);
}

// What the stall inspector has found, for where the ranks' records do not say who is missing: it knows the members of
// every set, and all operations.
std::string warning_text(const std::vector<StatusOfRank>& ranks, const Wait& wait) {
  const bool is_submitted_by_some = std::ranges::any_of(
      wait.in_it, [&](const StatusOfRank* rank) { return find(*rank, *wait.operation)->state == State::waits; });
  const Ranks warned = with_status(ranks, [](const RankStatus& status) { return !status.stall.empty(); });
  if (!is_submitted_by_some || warned.empty()) return "";
  const std::string& warning = warned.front()->status->stall;
  return printable(warning.substr(warning.starts_with(kStalled) ? kStalled.size() : 0));
}

// ---- Parameter servers

const StatusOfRank* worker_in(const std::vector<StatusOfRank>& processes, int worker) {
  const auto found = std::ranges::find_if(processes, [&](const StatusOfRank& process) {
    return process.server < 0 && process.rank == worker;  // in an elastic job, the process's number
  });
  return found == processes.end() ? nullptr : &*found;
}

// Where no process is a server, every rank serves a shard.
const StatusOfRank* server_in(const std::vector<StatusOfRank>& processes, int server) {
  const bool has_servers = std::ranges::any_of(processes, [](const StatusOfRank& one) { return one.server >= 0; });
  if (!has_servers) return worker_in(processes, server);
  const auto found = std::ranges::find(processes, server, &StatusOfRank::server);
  return found == processes.end() ? nullptr : &*found;
}

std::string server_text(const StatusOfRank& server) {
  return "server " + std::to_string(server.server < 0 ? server.rank : server.server) + " (host " +
         printable(server.host) + ")";
}

// Requests wait for a worker whose clock is behind.
std::string kept_waiting_text(const std::vector<StatusOfRank>& processes, Duration stall_time) {
  const StatusOfRank* at = nullptr;
  const ShardFacts* kept = nullptr;
  for (const StatusOfRank& process : processes) {
    if (!process.status || process.status->waited < stall_time) continue;
    for (const ShardFacts& shard : process.status->shards) {
      if (shard.slowest == kNobody || (at != nullptr && at->status->waited >= process.status->waited)) continue;
      at = &process;
      kept = &shard;
    }
  }
  const StatusOfRank* const slowest = at == nullptr ? nullptr : worker_in(processes, kept->slowest);
  if (slowest == nullptr) return "";
  const Ranks late{slowest};
  const std::string stopped = slowest->status && slowest->status->stopped ? stopped_clause(late) : "";
  const Ranks waiting = only(with_status(processes, [](const RankStatus& status) { return status.awaited != kNobody; }),
                             [&](const StatusOfRank* process) { return process != slowest; });
  const std::string whom = waiting.empty() ? "workers" : numbers_text(waiting);
  return stopped + culprits_text(late) + " has kept " + whom + " waiting for " + age_text(at->status->waited) + " at " +
         server_text(*at) + ", because its clock is behind" + place_text(late);
}

// Why a server that ranks wait for does not answer; empty if it only waits itself.
std::string silence_of(const StatusOfRank* server, int number) {
  if (server == nullptr) return "server " + std::to_string(number) + " has ended";
  const std::string name = server_text(*server);
  if (!server->status) return name + " does not answer";
  if (server->status->stopped) return name + " is stopped, as by SIGSTOP or Ctrl-Z";
  return server->status->in_job ? "" : name + " has not called hvd.init() yet";
}

std::string silent_server_text(const std::vector<StatusOfRank>& processes, Duration stall_time) {
  const Ranks late = with_status(
      processes, [&](const RankStatus& status) { return status.awaited != kNobody && status.waited >= stall_time; });
  for (const StatusOfRank* rank : late) {
    const int number = rank->status->awaited;
    const StatusOfRank* const server = server_in(processes, number);
    const std::string silence = silence_of(server, number);
    if (silence.empty()) continue;
    const Ranks waiting = only(late, [&](const StatusOfRank* other) { return other->status->awaited == number; });
    Duration longest{};
    for (const StatusOfRank* other : waiting) longest = std::max(longest, other->status->waited);
    const bool is_elsewhere = server != nullptr && server->status && !server->status->stopped;
    return silence + "; " + numbers_text(waiting) + " " + has(waiting) + " waited " + age_text(longest) + " for it" +
           (is_elsewhere ? place_text({server}) : "");
  }
  return "";
}

std::string state_text(const OperationStatus& operation) {
  switch (operation.state) {
    case State::waits: return "waiting for " + age_text(operation.age);
    case State::performs: return "running for " + age_text(operation.age);
    case State::given_up: return "given up after " + age_text(operation.age);
  }
  return "";
}

// Indents text of another process line by line, with unprintable characters replaced.
std::string indented(const std::string& text) {
  std::string result;
  for (const auto& line : std::views::split(text, '\n')) {
    if (!line.empty()) result += "    " + printable(std::string_view(line.begin(), line.end())) + "\n";
  }
  return result;
}

std::string shard_text(const ShardFacts& shard) {
  const auto several = [](std::uint64_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  std::string text = "  " + std::string(shard.answers ? "shard " : "copy of shard ") + std::to_string(shard.number) +
                     ": " + several(shard.rows, "row") + " of " + several(shard.bytes, "byte") + ", " +
                     several(shard.pulls, "pull") + ", " + std::to_string(shard.pushes) +
                     (shard.pushes == 1 ? " push" : " pushes") + ", stale by " +
                     several(shard.staleness_median, "update") + " in the median and " +
                     std::to_string(shard.staleness_worst) + " at most";
  if (shard.queue > 0) text += "; " + several(shard.queue, "byte") + " of requests queued";
  if (shard.slowest != kNobody) {
    text += "; " + several(shard.waiting, "request") + (shard.waiting == 1 ? " waits" : " wait") + " for worker " +
            std::to_string(shard.slowest);
  }
  return text + "\n";
}

std::string own_text(const RankStatus& status) {
  if (status.pid == 0 && !status.frame && status.stack.empty()) return "has not called hvd.init()\n";
  std::string text = status.pid == 0 ? "has not called hvd.init()" : "pid " + std::to_string(status.pid);
  if (status.stopped) text += ", stopped";
  if (status.initializing) text += ", in hvd.init() for " + age_text(*status.initializing);
  if (status.frame) text += ", at " + printable(to_string(*status.frame));
  if (status.shards.empty() || status.counters.operations > 0) {
    text += ", " + std::to_string(status.counters.operations) + " operations so far";
  }
  if (status.since_progress) text += ", the last change " + age_text(*status.since_progress) + " ago";
  text += "\n";
  for (const OperationStatus& operation : status.open) {
    text += "  " + operation_text(operation) + " " + number_text(operation);
    if (!operation.shape.empty()) text += " " + printable(operation.shape);
    text += ", " + state_text(operation) + "\n";
  }
  if (status.more_open > 0) text += "  and " + std::to_string(status.more_open) + " more\n";
  if (status.awaited != kNobody) {
    text += "  has waited for server " + std::to_string(status.awaited) + " for " + age_text(status.waited) + "\n";
  }
  for (const ShardFacts& shard : status.shards) text += shard_text(shard);
  if (!status.stall.empty()) text += "  " + printable(status.stall) + "\n";
  return text + indented(status.stack);
}

}  // namespace

std::string find_stragglers(const std::vector<StatusOfRank>& processes, Duration stall_time) {
  std::vector<StatusOfRank> ranks;
  std::ranges::copy_if(processes, std::back_inserter(ranks), [](const StatusOfRank& one) { return one.server < 0; });
  if (std::string text = not_met_text(ranks); !text.empty()) return text;
  for (const auto& text_of : {silent_server_text, kept_waiting_text}) {  // a slow worker may wait for the server
    if (std::string text = text_of(processes, std::max(stall_time, kMoment)); !text.empty()) return text;
  }
  const std::vector<Wait> waits = all_waits(ranks, stall_time);
  const auto first = [&](const auto& text_of) -> std::string {
    for (const Wait& wait : waits) {
      if (std::string text = text_of(wait); !text.empty()) return text;
    }
    return "";
  };
  if (std::string text = first([&](const Wait& wait) { return stopped_text(ranks, wait); }); !text.empty()) return text;
  for (const auto& text_of : {not_submitted_text, different_operations_text, no_answer_text, not_performing_text}) {
    if (std::string text = first(text_of); !text.empty()) return text;
  }
  return first([&](const Wait& wait) { return warning_text(ranks, wait); });
}

std::string stable_part_of(const std::string& sentence) {
  const std::size_t place = sentence.rfind(" is at ");  // place_text()
  std::string stable_part = place == std::string::npos ? sentence : sentence.substr(0, sentence.rfind("; ", place));
  for (const std::string before : {"waited ", "waiting for ", "done for ", "("}) {
    for (std::size_t at = stable_part.find(before); at != std::string::npos;
         at = stable_part.find(before, at + before.size())) {
      const std::size_t age = at + before.size();
      const std::size_t end = std::min(stable_part.find_first_not_of("0123456789.", age), stable_part.size());
      if (stable_part.compare(end, 2, " s") == 0) stable_part.erase(age, end - age);  // age_text()
    }
  }
  return stable_part;
}

Duration time_to_count_as_stalled(const std::vector<StatusOfRank>& ranks) {
  Duration stall_time{};
  for (const StatusOfRank& rank : ranks) {
    if (!rank.status) continue;
    if (!rank.status->stall.empty()) return kMoment;
    stall_time = std::max(stall_time, rank.status->stall_time);
  }
  return stall_time;
}

std::string stacks_text(const std::vector<StatusOfRank>& ranks) {
  std::string text;
  for (const StatusOfRank& rank : ranks) {
    const auto& in_epoch = rank.epoch_rank;
    text += rank.server >= 0 ? "server " + std::to_string(rank.server)
                             : (in_epoch ? "process " : "rank ") + std::to_string(rank.rank);
    text += " (host " + printable(rank.host);
    if (in_epoch) text += ", rank " + std::to_string(in_epoch->rank) + " of epoch " + std::to_string(in_epoch->epoch);
    text += "): ";
    text += rank.status ? own_text(*rank.status) : "no answer\n";
  }
  return text;
}

}  // namespace hvd::launcher
