#include "launcher/watch/job_end.h"

#include <csignal>

#include "tests/launcher/start_time.h"
#include "tests/support/catch.h"

namespace hvd::launcher {

namespace {

constexpr ExitStatus kOk{};
constexpr ExitStatus exited(int code) { return {.by_signal = false, .value = code}; }
constexpr ExitStatus killed(int signal) { return {.by_signal = true, .value = signal}; }

TEST_CASE("while nothing has happened nothing is due") {
  JobEnd end(2, 1s);
  CHECK_FALSE(end.next_deadline().has_value());
  CHECK_FALSE(end.signal_due(kStart + 1000h).has_value());
  end.rank_ended(0, kOk, {}, kStart);
  CHECK_FALSE(end.next_deadline().has_value());
  end.rank_ended(1, kOk, {}, kStart);
  CHECK(end.all_ranks_ended());
  CHECK(end.exit_code() == 0);
  CHECK_FALSE(end.first_failed().has_value());
}

TEST_CASE("grace, SIGTERM, SIGKILL, and then no more") {
  JobEnd end(3, 1s);
  end.rank_ended(1, exited(7), {}, kStart);
  CHECK(end.next_deadline() == kStart + 1s);
  CHECK_FALSE(end.signal_due(kStart + 999ms).has_value());
  end.rank_ended(2, exited(1), {}, kStart + 500ms);  // does not prolong the grace
  CHECK(end.signal_due(kStart + 1s) == SIGTERM);
  CHECK_FALSE(end.signal_due(kStart + 1s).has_value());
  CHECK(end.next_deadline() == kStart + 3s);
  CHECK(end.signal_due(kStart + 3s) == SIGKILL);
  CHECK_FALSE(end.gave_up());
  CHECK_FALSE(end.signal_due(kStart + 8s).has_value());
  CHECK(end.gave_up());
  CHECK_FALSE(end.next_deadline().has_value());
  CHECK(end.first_failed() == 1);
  CHECK(end.exit_code() == 7);
}

TEST_CASE("what is left when all ranks have ended well is ended too") {
  JobEnd end(1, 2s);
  end.rank_ended(0, kOk, {}, kStart);
  CHECK(end.next_deadline() == kStart + 2s);
  CHECK(end.signal_due(kStart + 2s) == SIGTERM);
  CHECK(end.exit_code() == 0);
}

TEST_CASE("the cause is the first failure, or the signal that explains it") {
  struct Row {
    ExitStatus first, second;
    Duration between;
    int cause, exit_code;
  };
  const Row rows[] = {
      {exited(1), exited(2), 1ms, 0, 1},
      {exited(1), killed(SIGKILL), 1ms, 1, 137},
      {exited(1), killed(SIGSEGV), 900ms, 1, 139},
      {killed(SIGSEGV), killed(SIGKILL), 1ms, 0, 139},
      {killed(SIGKILL), exited(1), 1ms, 0, 137},
      {exited(1), killed(SIGABRT), 1ms, 0, 1},
      {killed(SIGABRT), exited(1), 1ms, 0, 134},
      {exited(1), killed(SIGTERM), 1100ms, 0, 1},  // the signal was ours
      {kOk, exited(4), 1ms, 1, 4},
  };
  for (const Row& row : rows) {
    JobEnd end(2, 1s);
    end.rank_ended(0, row.first, {}, kStart);
    const bool sent = end.signal_due(kStart + row.between).has_value();
    end.rank_ended(1, row.second, {}, kStart + row.between);
    INFO(row.first.exit_code() << " then " << row.second.exit_code());
    CHECK(end.first_failed() == row.cause);
    CHECK(end.exit_code() == row.exit_code);
    CHECK(end.ends()[1]->signal_sent == (sent ? SIGTERM : 0));
  }
}

const JobEnding kUntold{};
const JobEnding kInJob{.in_job = true};
JobEnding names(int rank) { return {.kind = JobEnding::Kind::consequence, .culprit = rank}; }
JobEnding local_failure() { return {.kind = JobEnding::Kind::local_failure, .cause = "raised ValueError"}; }

TEST_CASE("whoever ends first, the cause is the rank that others name, or that names none") {
  struct Ended {
    int rank;
    ExitStatus status;
    JobEnding said;
  };
  struct Row {
    const char* what;
    std::vector<Ended> ends;
    int cause, exit_code;
  };
  const Row rows[] = {
      {"the others are faster",
       {{0, exited(1), names(2)}, {1, exited(1), names(2)}, {2, exited(7), local_failure()}},
       2,
       7},
      {"one that says nothing", {{0, exited(1), names(2)}, {1, exited(1), names(2)}, {2, exited(9), kUntold}}, 2, 9},
      {"a chain", {{0, exited(1), names(1)}, {1, exited(1), names(2)}, {2, killed(SIGABRT), kUntold}}, 2, 134},
      {"who is named has ended well", {{0, exited(3), names(2)}, {2, kOk, kUntold}, {1, exited(4), names(2)}}, 0, 3},
      {"who is named has left without shutdown",
       {{2, kOk, kInJob}, {0, exited(3), names(2)}, {1, exited(4), names(2)}},
       2,
       1},
      {"and ends last", {{0, exited(3), names(1)}, {1, exited(4), names(2)}, {2, kOk, kInJob}}, 2, 1},
      {"and another one is killed as a consequence",
       {{2, kOk, kInJob}, {0, exited(3), names(2)}, {1, killed(SIGSEGV), names(2)}},
       2,
       1},
      {"nobody names who has left without shutdown",
       {{2, kOk, kInJob}, {0, exited(3), local_failure()}, {1, exited(4), names(0)}},
       0,
       3},
      {"all name each other", {{0, exited(3), names(1)}, {1, exited(4), names(0)}, {2, exited(5), names(1)}}, 0, 3},
      {"nobody knows whom", {{0, exited(3), names(kNobody)}, {2, exited(4), kUntold}, {1, kOk, kUntold}}, 2, 4},
      {"a rank that does not exist", {{0, exited(3), names(77)}, {1, exited(4), local_failure()}, {2, kOk, {}}}, 1, 4},
      {"itself", {{0, exited(3), names(0)}, {1, exited(4), local_failure()}, {2, kOk, {}}}, 1, 4},
      {"two failures of their own",
       {{1, exited(3), local_failure()}, {0, exited(4), local_failure()}, {2, kOk, {}}},
       1,
       3},
      {"a failure of its own is no consequence of a signal",
       {{1, exited(3), local_failure()}, {0, killed(SIGSEGV), kUntold}, {2, kOk, {}}},
       1,
       3},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    JobEnd end(3, 1s);
    for (const Ended& each : row.ends) end.rank_ended(each.rank, each.status, each.said, kStart);
    CHECK(end.first_failed() == row.cause);
    CHECK(end.exit_code() == row.exit_code);
  }
}

TEST_CASE("a rank that others name has time to end with its own code") {
  JobEnd end(2, 1s);
  end.rank_ended(0, exited(1), names(1), kStart);
  CHECK_FALSE(end.signal_due(kStart + 1s).has_value());
  CHECK(end.next_deadline() == kStart + kCulpritTime);
  CHECK(end.signal_due(kStart + kCulpritTime) == SIGTERM);

  SECTION("and is not to blame if it was only slow") {
    end.rank_ended(1, killed(SIGTERM), kUntold, kStart + kCulpritTime);
    CHECK(end.first_failed() == 0);
  }
  SECTION("but is if it had failed before") {
    end.rank_ended(1, killed(SIGTERM), local_failure(), kStart + kCulpritTime);
    CHECK(end.first_failed() == 1);
    CHECK(end.exit_code() == 1);
  }
}

TEST_CASE("a rank that exits with 0 because hvdrun ends it is not to blame") {
  JobEnd end(2, 1s);
  end.rank_ended(0, exited(3), names(1), kStart);
  CHECK(end.signal_due(kStart + kCulpritTime) == SIGTERM);
  end.rank_ended(1, kOk, kInJob, kStart + kCulpritTime);
  CHECK(end.first_failed() == 0);
  CHECK(end.exit_code() == 3);
}

TEST_CASE("that all ranks end without shutdown is no failure") {
  JobEnd end(2, 1s);
  end.rank_ended(0, kOk, kInJob, kStart);
  end.rank_ended(1, kOk, kInJob, kStart);
  CHECK_FALSE(end.first_failed().has_value());
  CHECK(end.exit_code() == 0);
}

TEST_CASE("once it has ended, the grace is the usual one") {
  JobEnd end(3, 1s);
  end.rank_ended(0, exited(1), names(1), kStart);
  end.rank_ended(1, exited(7), local_failure(), kStart + 500ms);
  CHECK(end.next_deadline() == kStart + 1s);
  JobEnd hurried(2, 1s);
  hurried.rank_ended(0, exited(1), names(1), kStart);
  hurried.timed_out(kStart + 10ms);
  CHECK(hurried.signal_due(kStart + 10ms) == SIGTERM);
}

TEST_CASE("an interruption blames nobody") {
  JobEnd end(2, 1s);
  end.interrupted(SIGINT, kStart);
  end.rank_ended(0, exited(1), {}, kStart + 1ms);
  end.rank_ended(1, killed(SIGINT), {}, kStart + 2ms);
  CHECK_FALSE(end.first_failed().has_value());
  CHECK(end.interrupting_signal() == SIGINT);
  CHECK(end.exit_code() == 130);
}

TEST_CASE("a program that ends well when asked to has ended well") {
  JobEnd end(1, 1s);
  end.interrupted(SIGTERM, kStart);
  end.rank_ended(0, kOk, {}, kStart + 1ms);
  CHECK(end.exit_code() == 0);
}

TEST_CASE("a job that is interrupted has not ended well if it had no ranks, or has lost some") {
  JobEnd without(0, 1s);
  without.interrupted(SIGINT, kStart);
  CHECK(without.exit_code() == 128 + SIGINT);
  CHECK(interruption_report(SIGINT, {}) == "hvdrun: ended by SIGINT\n");

  JobEnd end(2, 1s);
  end.interrupted(SIGTERM, kStart);
  end.rank_ended(0, kOk, {}, kStart + 1ms);
  end.host_lost({.name = "h2", .ranks = {1}, .cause = "silent"}, kStart + 2ms);
  CHECK(end.exit_code() == 128 + SIGTERM);
}

TEST_CASE("a failure before the interruption stays the cause") {
  JobEnd end(2, 1s);
  end.rank_ended(0, exited(5), {}, kStart);
  end.interrupted(SIGINT, kStart + 1ms);
  end.rank_ended(1, killed(SIGINT), {}, kStart + 2ms);
  CHECK(end.interrupting_signal() == 0);
  CHECK(end.exit_code() == 5);
}

TEST_CASE("the second Ctrl-C kills at once, a second SIGTERM does not") {
  for (const Duration pause : {Duration(100ms), Duration(1500ms)}) {
    JobEnd end(1, 1s);
    end.interrupted(SIGINT, kStart);
    end.signal_due(kStart + pause);
    end.interrupted(SIGINT, kStart + pause);
    CHECK(end.signal_due(kStart + pause) == SIGKILL);
  }
  JobEnd end(1, 1s);
  end.interrupted(SIGTERM, kStart);
  end.interrupted(SIGTERM, kStart + 100ms);
  CHECK_FALSE(end.signal_due(kStart + 100ms).has_value());
}

TEST_CASE("a signal that comes twice at the same time is one") {
  JobEnd end(1, 1s);
  CHECK(end.interrupted(SIGINT, kStart));
  CHECK_FALSE(end.interrupted(SIGINT, kStart + 1ms));
  CHECK_FALSE(end.signal_due(kStart + 1ms).has_value());
  CHECK(end.interrupted(SIGTERM, kStart + 2ms));
  CHECK(end.interrupted(SIGINT, kStart + 150ms));
  CHECK(end.signal_due(kStart + 150ms) == SIGKILL);
}

TEST_CASE("output that nobody reads ends the job as a broken pipe") {
  JobEnd end(2, 100s);
  end.output_closed(kStart);
  CHECK(end.signal_due(kStart) == SIGTERM);
  end.rank_ended(0, killed(SIGTERM), {}, kStart);
  CHECK_FALSE(end.first_failed().has_value());
  CHECK(end.exit_code() == 141);

  JobEnd after_failure(2, 1s);
  after_failure.rank_ended(0, exited(3), {}, kStart);
  after_failure.output_closed(kStart);
  CHECK(after_failure.exit_code() == 3);
  CHECK_FALSE(after_failure.signal_due(kStart).has_value());
}

TEST_CASE("a job whose time is over is ended without a grace period") {
  JobEnd end(2, 100s);
  end.timed_out(kStart);
  CHECK(end.reason() == JobEnd::Reason::timed_out);
  CHECK(end.signal_due(kStart) == SIGTERM);
  end.rank_ended(0, killed(SIGTERM), {}, kStart);
  end.rank_ended(1, exited(0), {}, kStart);
  CHECK_FALSE(end.first_failed().has_value());
  CHECK(end.exit_code() == 124);

  JobEnd after_failure(2, 1s);
  after_failure.rank_ended(0, exited(3), {}, kStart);
  after_failure.timed_out(kStart);
  CHECK(after_failure.reason() == JobEnd::Reason::rank_failed);
  CHECK(after_failure.exit_code() == 3);
  CHECK(after_failure.signal_due(kStart) == SIGTERM);
}

TEST_CASE("a job that could not be started is killed") {
  JobEnd end(3, 100s);
  end.start_failed(1, kStart);
  CHECK(end.signal_due(kStart) == SIGKILL);
  end.rank_ended(0, killed(SIGKILL), {}, kStart);
  CHECK(end.exit_code() == 1);
}

TEST_CASE("a host that is lost takes its ranks with it") {
  JobEnd end(4, 1s);
  end.rank_ended(2, kOk, {}, kStart);
  end.host_lost({.name = "h2", .ranks = {2, 3}, .cause = "silent"}, kStart + 1s);
  CHECK(end.next_deadline() == kStart + 2s);
  REQUIRE(end.lost_hosts().size() == 1);
  CHECK(end.ends()[2]->status == kOk);
  CHECK_FALSE(end.ends()[2]->lost);
  CHECK(end.ends()[3]->lost);
  CHECK_FALSE(end.first_failed().has_value());
  end.rank_ended(0, exited(1), {}, kStart + 1500ms);  // a consequence
  CHECK_FALSE(end.first_failed().has_value());
  CHECK(end.exit_code() == 1);
}

TEST_CASE("errors that precede the loss of a host by a moment are its consequences") {
  JobEnd end(4, 1s);
  end.rank_ended(0, exited(3), {}, kStart);
  end.host_lost({.name = "h2", .ranks = {2, 3}, .cause = "silent"}, kStart + 10ms);
  end.rank_ended(1, exited(3), {}, kStart + 20ms);
  CHECK_FALSE(end.first_failed().has_value());
  CHECK(end.exit_code() == 1);
  CHECK(end.next_deadline() == kStart + 1s);

  JobEnd killed_before(4, 1s);
  killed_before.rank_ended(0, killed(SIGSEGV), {}, kStart);
  killed_before.host_lost({.name = "h2", .ranks = {2, 3}, .cause = "silent"}, kStart + 10ms);
  CHECK(killed_before.first_failed() == 0);

  JobEnd left_before(4, 1s);
  left_before.rank_ended(0, kOk, kInJob, kStart);
  left_before.rank_ended(1, exited(3), names(0), kStart + 5ms);
  left_before.host_lost({.name = "h2", .ranks = {2, 3}, .cause = "silent"}, kStart + 10ms);
  CHECK(left_before.first_failed() == 0);
}

TEST_CASE("a host that is lost when all of its ranks have ended is nobody's loss") {
  JobEnd end(2, 1s);
  end.rank_ended(1, kOk, {}, kStart);
  CHECK_FALSE(end.host_lost({.name = "h2", .ranks = {1}, .cause = "silent"}, kStart));
  CHECK_FALSE(end.next_deadline().has_value());
  CHECK(end.lost_hosts().empty());
}

TEST_CASE("a host that is lost with a server that ran fails the job") {
  JobEnd end(2, 1s);
  end.rank_ended(1, kOk, {}, kStart);
  CHECK(end.is_running());
  CHECK(end.host_lost({.name = "h2", .ranks = {1}, .servers = {0}, .cause = "silent"}, kStart));
  CHECK_FALSE(end.is_running());
  CHECK(end.lost_hosts().size() == 1);
  CHECK(end.exit_code() == 1);
}

TEST_CASE("a server that fails ends the job with its exit code, unless a rank failed before") {
  JobEnd end(2, 1s);
  end.server_failed(exited(5), kStart);
  end.rank_ended(0, exited(3), {}, kStart + 1ms);  // a consequence
  CHECK(end.signal_due(kStart + 1s) == SIGTERM);
  CHECK(end.reason() == JobEnd::Reason::server_failed);
  CHECK_FALSE(end.first_failed().has_value());
  CHECK(end.exit_code() == 5);

  JobEnd after_a_rank(2, 1s);
  after_a_rank.rank_ended(0, exited(3), {}, kStart);
  after_a_rank.server_failed(killed(SIGKILL), kStart + 1ms);
  CHECK(after_a_rank.reason() == JobEnd::Reason::rank_failed);
  CHECK(after_a_rank.first_failed() == 0);
  CHECK(after_a_rank.exit_code() == 3);
}

TEST_CASE("a program that cannot be started decides the exit code") {
  JobEnd end(2, 1s);
  end.start_failed(127, kStart);
  end.start_failed(1, kStart);
  CHECK(end.signal_due(kStart) == SIGKILL);
  CHECK(end.exit_code() == 127);
}

using Ends = std::vector<std::optional<RankEnd>>;

RankEnd by_exit(int code) { return {.status = {.by_signal = false, .value = code}}; }
RankEnd by_signal(int signal, int sent = 0, bool core = false) {
  return {.status = {.by_signal = true, .value = signal, .core_dumped = core}, .signal_sent = sent};
}

TEST_CASE("ranks are listed shortly") {
  CHECK(list_ranks({4}) == "rank 4");
  CHECK(list_ranks({0, 1}) == "ranks 0, 1");
  CHECK(list_ranks({0, 1, 2, 3}) == "ranks 0-3");
  CHECK(list_ranks({0, 2, 4, 5, 6, 9}) == "ranks 0, 2, 4-6, 9");
}

TEST_CASE("a failed job is reported with its cause, its last words, and the fate of the others") {
  const Failure failure{.rank = 2, .pid = 4711, .age = 12340ms, .last_lines = {"Traceback:", "  ValueError: 5"}};
  const Ends ends{
      by_exit(1), by_exit(1), by_exit(3), by_signal(SIGTERM, SIGTERM), by_exit(0), by_signal(SIGSEGV, SIGTERM), {}};
  CHECK(failure_report(failure, ends) ==
        "hvdrun: rank 2 failed first: exit code 3 (pid 4711, after 12.3 s)\n"
        "hvdrun: the last lines of its standard error:\n"
        "    Traceback:\n"
        "      ValueError: 5\n"
        "hvdrun: the others: ranks 0, 1 exited with code 1; rank 3 terminated by hvdrun (SIGTERM); rank 4 exited "
        "normally; "
        "rank 5 killed by SIGSEGV; rank 6 could not be killed\n");
}

TEST_CASE("a server that has failed is reported beside all ranks") {
  const Failure failure{.rank = 1, .host = "h2", .server_end = by_exit(3), .pid = 7};
  CHECK(failure_report(failure, {by_signal(SIGTERM, SIGTERM)}) ==
        "hvdrun: server 1 on h2 failed first: exit code 3 (pid 7, after 0.0 s)\n"
        "hvdrun: it wrote nothing to its standard error\n"
        "hvdrun: the others: rank 0 terminated by hvdrun (SIGTERM)\n");
}

TEST_CASE("what a rank has told of its failure is reported") {
  const RankEnd told{.status = {.by_signal = false, .value = 1},
                     .said = {.kind = JobEnding::Kind::local_failure, .cause = "raised ValueError: bad (a.py:3)"}};
  CHECK(failure_report({.rank = 1, .host = "h2", .pid = 7}, {by_exit(1), told}) ==
        "hvdrun: rank 1 on h2 failed first: exit code 1 (pid 7, after 0.0 s)\n"
        "hvdrun: it raised ValueError: bad (a.py:3)\n"
        "hvdrun: it wrote nothing to its standard error\n"
        "hvdrun: the others: rank 0 exited with code 1\n");
  CHECK(rank_failure(1, "h2", told) == "rank 1 on h2 raised ValueError: bad (a.py:3)");
  CHECK(rank_failure(0, "", by_exit(3)) == "rank 0 has failed: exit code 3");
}

TEST_CASE("a rank that has ended without leaving the job has not ended well") {
  const RankEnd silent{.status = {}, .said = {.in_job = true}};
  const Failure failure{.rank = 0, .pid = 7};
  CHECK(failure_report(failure, {by_exit(1), silent, by_exit(0)})
            .ends_with("hvdrun: the others: rank 1 ended without shutdown; rank 2 exited normally\n"));
  CHECK(failure_report({.rank = 1, .pid = 7}, {by_exit(1), silent})
            .starts_with("hvdrun: rank 1 failed first: ended without shutdown (exit code 0) (pid 7, after 0.0 s)\n"));
  CHECK(rank_failure(1, "h2", silent) == "rank 1 on h2 has failed: ended without shutdown (exit code 0)");
}

TEST_CASE("a signal is named") {
  const Failure failure{.rank = 0, .pid = 7, .age = 0ms, .last_lines = {}};
  CHECK(failure_report(failure, {by_signal(SIGSEGV, 0, true)}) ==
        "hvdrun: rank 0 failed: killed by SIGSEGV (core dumped) (pid 7, after 0.0 s)\n"
        "hvdrun: it wrote nothing to its standard error\n");
  CHECK(failure_report(failure, {by_signal(SIGKILL)}).find("SIGKILL (by another process, or by the kernel") !=
        std::string::npos);
  CHECK(failure_report(failure, {by_signal(SIGXFSZ)}).find("SIGXFSZ (a file has grown to the limit of ulimit -f)") !=
        std::string::npos);
  CHECK(signal_name(SIGUSR1) == "SIGUSR1");
  CHECK(signal_name(SIGRTMIN + 3) == "signal " + std::to_string(SIGRTMIN + 3));
}

TEST_CASE("an interruption is one line") {
  CHECK(interruption_report(SIGINT, {by_exit(1), by_exit(1), by_signal(SIGKILL, SIGKILL)}) ==
        "hvdrun: ended by SIGINT; ranks 0, 1 exited with code 1; rank 2 terminated by hvdrun (SIGKILL)\n");
  CHECK(interruption_report(SIGINT, {by_exit(1), by_exit(1), by_signal(SIGKILL, SIGKILL)}, true) ==
        "hvdrun: ended by SIGINT; processes 0, 1 exited with code 1; process 2 terminated by hvdrun (SIGKILL)\n");
}

TEST_CASE("a lost host is reported with its ranks, and why") {
  const RankEnd lost{.status = {}, .lost = true};
  CHECK(lost_host_report({{.name = "h2", .ranks = {2, 3}, .cause = "no heartbeat for 5 s"}},
                         {by_exit(1), by_signal(SIGTERM, SIGTERM), lost, lost}) ==
        "hvdrun: host h2 (ranks 2, 3) is lost: no heartbeat for 5 s\n"
        "hvdrun: the others: rank 0 exited with code 1; rank 1 terminated by hvdrun (SIGTERM)\n");
  CHECK(host_loss({.name = "h2", .ranks = {2, 3}, .servers = {1, 4}, .cause = "silent"}) ==
        "host h2 (ranks 2, 3, server 1, server 4) is lost: silent");
}

TEST_CASE("where there are several hosts, the failed rank's is named") {
  const Failure failure{.rank = 1, .host = "h2", .pid = 9, .age = 1s, .last_lines = {"x"}};
  CHECK(
      failure_report(failure, {by_exit(0), by_exit(3)}).starts_with("hvdrun: rank 1 on h2 failed first: exit code 3"));
}

}  // namespace

}  // namespace hvd::launcher
