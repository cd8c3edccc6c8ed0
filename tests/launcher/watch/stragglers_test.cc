#include "launcher/watch/rank_status.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using State = OperationStatus::State;

OperationStatus in(const std::string& name, std::uint64_t sequence, Duration age, State state = State::waits,
                   std::int32_t set = 0) {
  return {.state = state,
          .process_set = set,
          .sequence = sequence,
          .what = "allreduce",
          .name = name,
          .shape = {},
          .age = age};
}

// A rank that has done so much of set 0, and has these under way.
StatusOfRank rank(int number, std::uint64_t done, std::vector<OperationStatus> open) {
  RankStatus status;
  status.rank = number;
  status.pid = 100 + number;
  status.in_job = true;
  status.sets = {{0, done + open.size(), done}};
  status.open = std::move(open);
  return {.rank = number, .host = "h" + std::to_string(number), .status = std::move(status)};
}

StatusOfRank at(StatusOfRank rank, const std::string& file, int line, const std::string& function) {
  rank.status->frame = PythonFrame{file, line, function};
  return rank;
}

StatusOfRank silent(int number) { return {.rank = number, .host = "h" + std::to_string(number), .status = {}}; }

StatusOfRank stopped(StatusOfRank rank) {
  rank.status->stopped = true;
  return rank;
}

StatusOfRank initializing(int number, Duration time) {
  StatusOfRank result = rank(number, 0, {});
  result.status->sets.clear();
  result.status->initializing = time;
  return result;
}

StatusOfRank left(StatusOfRank rank) {
  rank.status->in_job = false;
  return rank;
}

StatusOfRank ended(StatusOfRank rank) {
  rank.status->ended = true;
  return rank;
}

struct Case {
  std::string what;
  std::vector<StatusOfRank> ranks;
  std::string sentence;
};

TEST_CASE("one sentence says who is behind") {
  const auto performing = State::performs, given_up = State::given_up;
  const auto waiting = [](int number) { return rank(number, 117, {in("w", 118, 12400ms)}); };
  const auto elsewhere = [](int number) { return at(rank(number, 117, {}), "/home/me/train.py", 48, "load_batch"); };
  StatusOfRank not_there = at(rank(1, 0, {}), "train.py", 3, "<module>");
  not_there.status->pid = 0;
  not_there.status->in_job = false;
  not_there.status->sets.clear();
  StatusOfRank in_set_5 = rank(0, 9, {in("w", 2, 5s, performing, 5)});
  in_set_5.status->sets.push_back({5, 2, 1});
  StatusOfRank out_of_set_5 = rank(1, 9, {});
  StatusOfRank behind_in_set_5 = rank(2, 9, {});
  behind_in_set_5.status->sets.push_back({5, 1, 1});
  OperationStatus join = in("<join>", 9, 20s);
  join.what = "join";
  StatusOfRank many = rank(1, 100, {in("a", 101, 13s)});
  many.status->more_open = 50;
  many.status->sets = {{0, 151, 100}};
  const auto warned = [](StatusOfRank rank) {
    rank.status->stall = "stalled: waiting for rank 1 on h1 to submit allreduce 'w' (1.0 s)";
    return rank;
  };
  const Case cases[] = {
      {"nobody", {}, ""},
      {"all work", {rank(0, 3, {}), rank(1, 3, {})}, ""},
      {"nobody waits for long", {rank(0, 3, {in("w", 4, 100ms)}), rank(1, 3, {})}, ""},
      {"one is elsewhere",
       {waiting(0), waiting(1), waiting(2), elsewhere(3)},
       "rank 3 (host h3) has not submitted allreduce 'w' (operation 118 of set 0), for which ranks 0-2 have waited "
       "12.4 s; it is at train.py:48 in load_batch"},
      {"two are elsewhere, and one has asked for it in doing it",
       {rank(0, 117, {in("w", 118, 2s, performing)}), rank(1, 117, {}), elsewhere(2)},
       "ranks 1, 2 have not submitted allreduce 'w' (operation 118 of set 0), for which rank 0 has waited 2.0 s; rank "
       "2 "
       "is at train.py:48 in load_batch"},
      {"the job has given up",
       {rank(0, 117, {in("w", 118, 2s, given_up)}), rank(1, 117, {})},
       "rank 1 (host h1) has not submitted allreduce 'w' (operation 118 of set 0), for which rank 0 has waited 2.0 s"},
      {"others wait for one who waits for another one",
       {rank(0, 9, {in("b", 10, 9s)}), rank(1, 8, {in("a", 9, 8s)}), rank(2, 8, {})},
       "rank 2 (host h2) has not submitted allreduce 'b' (operation 10 of set 0), for which rank 0 has waited 9.0 s"},
      {"they are in each other's way",
       {rank(0, 4, {in("a", 5, 3s)}), rank(1, 4, {in("a", 5, 3s)}), at(rank(2, 4, {in("b", 5, 4s)}), "x.py", 7, "f")},
       "rank 2 has waited 4.0 s for allreduce 'b' (operation 5 of set 0), but rank 0 (host h0) for allreduce 'a' "
       "(operation 5 of set 0): the ranks do not submit the same operations in the same order"},
      {"one has finished what others are still in", {rank(0, 4, {in("a", 5, 3s, performing)}), rank(1, 5, {})}, ""},
      {"all are in the same operation",
       {rank(0, 4, {in("a", 5, 3s, performing)}), rank(1, 4, {in("a", 5, 3s, performing)})},
       ""},
      {"one does not perform it",
       {rank(0, 4, {in("a", 5, 3s, performing)}), at(rank(1, 4, {in("a", 5, 3s)}), "x.py", 7, "f")},
       "rank 1 (host h1) has submitted allreduce 'a' (operation 5 of set 0) but does not perform it, as rank 0 has "
       "done for 3.0 s; it is at x.py:7 in f"},
      {"one is stopped in the operation",
       {rank(0, 4, {in("a", 5, 3s, performing)}), stopped(rank(1, 4, {in("a", 5, 3s, performing)}))},
       "rank 1 (host h1) is stopped, as by SIGSTOP or Ctrl-Z; rank 0 has waited 3.0 s in allreduce 'a' (operation 5 of "
       "set 0)"},
      {"two are stopped before it",
       {rank(0, 4, {in("a", 5, 3s)}), stopped(rank(1, 4, {})), stopped(rank(2, 4, {}))},
       "ranks 1, 2 are stopped, as by SIGSTOP or Ctrl-Z; rank 0 has waited 3.0 s in allreduce 'a' (operation 5 of set "
       "0)"},
      {"one has no answer",
       {rank(0, 4, {in("a", 5, 3s)}), silent(1)},
       "rank 1 (host h1) does not answer; rank 0 has waited 3.0 s in allreduce 'a' (operation 5 of set 0)"},
      {"one has no answer, and another one is known to be elsewhere",
       {rank(0, 4, {in("a", 5, 3s)}), silent(1), rank(2, 4, {})},
       "rank 2 (host h2) has not submitted allreduce 'a' (operation 5 of set 0), for which rank 0 has waited 3.0 s"},
      {"one has not come to init",
       {initializing(0, 2s), not_there, initializing(2, 1s)},
       "rank 1 (host h1) has not called hvd.init() yet, in which ranks 0, 2 have waited 2.0 s; it is at train.py:3 in "
       "<module>"},
      {"one has not come to init, a moment after the others", {initializing(0, 100ms), not_there}, ""},
      {"one has come to init and is stopped",
       {initializing(0, 3s), stopped(initializing(1, 4s))},
       "rank 1 (host h1) is stopped, as by SIGSTOP or Ctrl-Z; rank 0 has waited 3.0 s in hvd.init()"},
      {"one is stopped before init",
       {initializing(0, 3s), stopped(not_there)},
       "rank 1 (host h1) is stopped, as by SIGSTOP or Ctrl-Z; rank 0 has waited 3.0 s in hvd.init()"},
      {"one has left, and does not come again",
       {initializing(0, 3s), left(at(rank(1, 7, {}), "train.py", 9, "f"))},
       "rank 1 (host h1) has not called hvd.init() yet, in which rank 0 has waited 3.0 s; it is at train.py:9 in f"},
      {"one has ended",
       {initializing(0, 3s), ended(rank(1, 0, {}))},
       "rank 1 (host h1) has ended; rank 0 has waited 3.0 s in hvd.init()"},
      {"all are in init", {initializing(0, 3s), initializing(1, 3s)}, ""},
      {"one never came to init, and the others have left it", {rank(0, 0, {}), not_there}, ""},
      {"a program without hvd", {not_there, not_there}, ""},
      {"in a set of some ranks",
       {in_set_5, out_of_set_5, behind_in_set_5},
       "rank 2 (host h2) has not submitted allreduce 'w' (operation 2 of set 5), for which rank 0 has waited 5.0 s"},
      {"one has joined, which says nothing of the operation that others wait for",
       {rank(0, 8, {join}), rank(1, 8, {in("w", 9, 3s)}), rank(2, 8, {})},
       "rank 2 (host h2) has not submitted allreduce 'w' (operation 9 of set 0), for which rank 1 has waited 3.0 s"},
      {"one has not joined",
       {rank(0, 8, {join}), rank(1, 8, {})},
       "rank 1 (host h1) has not submitted join '<join>' (operation 9 of set 0), for which rank 0 has waited 20.0 s"},
      {"more is open than is told",
       {rank(0, 100, {in("z", 120, 12s)}), many, rank(2, 100, {})},
       "rank 2 (host h2) has not submitted allreduce 'a' (operation 101 of set 0), for which rank 1 has waited 13.0 s"},
      {"in a set of which the late rank has no record, the stall inspector knows who it is",
       {warned(rank(0, 9, {in("w", 1, 5s, State::waits, 5)})), warned(rank(1, 9, {})), rank(2, 9, {})},
       "waiting for rank 1 on h1 to submit allreduce 'w' (1.0 s)"},
      {"a warning that is over", {warned(rank(0, 9, {})), warned(rank(1, 9, {}))}, ""},
      {"a warning, and an operation that all perform",
       {warned(rank(0, 4, {in("a", 5, 3s, performing)})), warned(rank(1, 4, {in("a", 5, 3s, performing)}))},
       ""},
  };
  for (const Case& one : cases) {
    INFO(one.what);
    CHECK(find_stragglers(one.ranks, 1s) == one.sentence);
  }
}

TEST_CASE("a warning makes impatient") {
  std::vector<StatusOfRank> ranks = {rank(0, 0, {}), silent(1), rank(2, 0, {})};
  ranks[0].status->stall_time = ranks[2].status->stall_time = 10s;
  CHECK(time_to_count_as_stalled(ranks) == 10s);
  ranks[2].status->stall = "waiting for rank 1";
  CHECK(time_to_count_as_stalled(ranks) < 1s);
  CHECK(time_to_count_as_stalled({}) == Duration::zero());
}

TEST_CASE("hvd stacks tells what each rank does") {
  StatusOfRank one = at(rank(0, 4, {in("a\x1b", 5, 3s)}), "x.py", 7, "f");
  one.status->open[0].shape = "float32[2]";
  one.status->more_open = 2;
  one.status->counters.operations = 4;
  one.status->since_progress = 3s;
  one.status->stall = "stalled: waiting for rank 1";
  one.status->stack = "Current thread 0x1\n  File \"x.py\", line 7 in f\n\n";
  StatusOfRank not_there = rank(1, 0, {});
  not_there.status->pid = 0;
  not_there.status->in_job = false;
  CHECK(stacks_text({one, not_there, silent(2)}) ==
        "rank 0 (host h0): pid 100, at x.py:7 in f, 4 operations so far, the last change 3.0 s ago\n"
        "  allreduce 'a?' (operation 5 of set 0) float32[2], waiting for 3.0 s\n"
        "  and 2 more\n"
        "  stalled: waiting for rank 1\n"
        "    Current thread 0x1\n"
        "      File \"x.py\", line 7 in f\n"
        "rank 1 (host h1): has not called hvd.init()\n"
        "rank 2 (host h2): no answer\n");
}

TEST_CASE("the stable_part of a stall is the same as long as it lasts") {
  const std::string who =
      "rank 3 (host h2) has not submitted allreduce 'waiting for 1 s' (operation 118 of set 0), for which ";
  const std::string stable_part =
      stable_part_of(who + "ranks 0-2 have waited 12.4 s; it is at train.py:48 in load_batch");
  CHECK(stable_part == stable_part_of(who + "ranks 0-2 have waited 120.9 s; it is at train.py:49 in next"));
  CHECK(stable_part == stable_part_of(who + "ranks 0-2 have waited 1.0 s"));
  CHECK(stable_part != stable_part_of(who + "ranks 0, 1 have waited 12.4 s"));
  CHECK(stable_part_of("rank 1 performs, as rank 0 has done for 3.1 s; rank 1 is at a.py:1") ==
        "rank 1 performs, as rank 0 has done for  s");
  const std::string warning = "waiting for rank 1 on h1 (pid 7) to submit allreduce 'w' ";
  CHECK(stable_part_of(warning + "(1.0 s)") == warning + "( s)");
  CHECK(stable_part_of(warning + "(120.5 s)") == warning + "( s)");
  CHECK(stable_part_of("waited ").size() == 7);
  CHECK(stable_part_of("").empty());
}

// A server with one shard, where requests have waited for the worker for that long.
StatusOfRank server(int number, int slowest = kNobody, Duration waited = {}) {
  StatusOfRank result = rank(100 + number, 0, {});
  result.server = number;
  result.status->sets.clear();
  result.status->waited = waited;
  result.status->shards = {
      {.number = number, .answers = true, .waiting = slowest == kNobody ? 0u : 1u, .slowest = slowest}};
  return result;
}

StatusOfRank awaiting(StatusOfRank rank, int server, Duration waited) {
  rank.status->awaited = server;
  rank.status->waited = waited;
  return rank;
}

TEST_CASE("stragglers: parameter servers, and who keeps them") {
  const auto idle = [](int number) { return rank(number, 0, {}); };
  const auto waits = [&](int number, int for_server) { return awaiting(idle(number), for_server, 12400ms); };
  StatusOfRank silent_server = server(1);
  silent_server.status.reset();
  const std::vector<Case> cases = {
      {"a slow worker",
       {waits(0, 0), at(idle(1), "train.py", 48, "load_batch"), waits(2, 1), server(0, 1, 12400ms), server(1, 1, 9s)},
       "rank 1 (host h1) has kept ranks 0, 2 waiting for 12.4 s at server 0 (host h100), because its clock is behind; "
       "it "
       "is at train.py:48 in load_batch"},
      {"a stopped worker",
       {waits(0, 0), stopped(idle(1)), server(0, 1, 12400ms)},
       "rank 1 (host h1) is stopped, as by SIGSTOP or Ctrl-Z; rank 1 (host h1) has kept rank 0 waiting for 12.4 s at "
       "server 0 (host h100), because its clock is behind"},
      {"a slow worker that waits for a stopped server",
       {waits(0, 0), waits(1, 1), server(0, 1, 12400ms), stopped(server(1))},
       "server 1 (host h101) is stopped, as by SIGSTOP or Ctrl-Z; rank 1 has waited 12.4 s for it"},
      {"a wait that is too short", {idle(0), idle(1), server(0, 1, 9s)}, ""},
      {"a stopped server",
       {waits(0, 1), waits(1, 1), server(0), stopped(server(1))},
       "server 1 (host h101) is stopped, as by SIGSTOP or Ctrl-Z; ranks 0, 1 have waited 12.4 s for it"},
      {"a server without an answer",
       {waits(0, 1), idle(1), server(0), silent_server},
       "server 1 (host h101) does not answer; rank 0 has waited 12.4 s for it"},
      {"a server that has not begun",
       {waits(0, 1), server(0), at(left(server(1)), "train.py", 3, "load")},
       "server 1 (host h101) has not called hvd.init() yet; rank 0 has waited 12.4 s for it; it is at train.py:3 in "
       "load"},
      {"a server that has ended", {waits(0, 1), server(0)}, "server 1 has ended; rank 0 has waited 12.4 s for it"},
      {"a server that is none of its own",
       {waits(0, 1), stopped(idle(1))},
       "server 1 (host h1) is stopped, as by SIGSTOP or Ctrl-Z; rank 0 has waited 12.4 s for it"},
      {"nobody waits", {idle(0), server(0)}, ""},
  };
  for (const Case& one : cases) {
    CAPTURE(one.what);
    CHECK(find_stragglers(one.ranks, 10s) == one.sentence);
  }
}

TEST_CASE("stragglers: a worker of an elastic job is known by its process") {
  StatusOfRank slow = rank(7, 0, {}), other = awaiting(rank(3, 0, {}), 0, 12s);
  slow.epoch_rank = EpochRank{4, 1};
  other.epoch_rank = EpochRank{4, 0};
  CHECK_THAT(find_stragglers({other, slow, server(0, 7, 12s)}, 10s),
             Catch::Matchers::StartsWith("rank 7 (host h7) has kept rank 3 "));
}

}  // namespace
}  // namespace hvd::launcher
