#include "launcher/watch/failure_report.h"

#include <csignal>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

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
        "hvdrun: the others: ranks 0, 1 exited with code 1; rank 3 had to be ended with SIGTERM; rank 4 ended well; "
        "rank 5 killed by SIGSEGV; rank 6 could not be killed\n");
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
            .ends_with("hvdrun: the others: rank 1 ended without shutdown; rank 2 ended well\n"));
  CHECK(failure_report({.rank = 1, .pid = 7}, {by_exit(1), silent})
            .starts_with("hvdrun: rank 1 failed first: ended without shutdown (exit code 0) (pid 7, after 0.0 s)\n"));
  CHECK(rank_failure(1, "h2", silent) == "rank 1 on h2 has failed: ended without shutdown (exit code 0)");
}

TEST_CASE("a signal is named") {
  const Failure failure{.rank = 0, .pid = 7, .age = 0ms, .last_lines = {}};
  CHECK(failure_report(failure, {by_signal(SIGSEGV, 0, true)}) ==
        "hvdrun: rank 0 failed: killed by SIGSEGV (core dumped) (pid 7, after 0.0 s)\n"
        "hvdrun: it wrote nothing to its standard error\n");
  CHECK(failure_report(failure, {by_signal(SIGKILL)}).find("SIGKILL (by somebody, or by the kernel") !=
        std::string::npos);
  CHECK(failure_report(failure, {by_signal(SIGXFSZ)}).find("SIGXFSZ (a file has grown to the limit of ulimit -f)") !=
        std::string::npos);
  CHECK(signal_name(SIGUSR1) == "SIGUSR1");
  CHECK(signal_name(SIGRTMIN + 3) == "signal " + std::to_string(SIGRTMIN + 3));
}

TEST_CASE("an interruption is one line") {
  CHECK(interruption_report(SIGINT, {by_exit(1), by_exit(1), by_signal(SIGKILL, SIGKILL)}) ==
        "hvdrun: ended by SIGINT; ranks 0, 1 exited with code 1; rank 2 had to be ended with SIGKILL\n");
}

TEST_CASE("a lost host is reported with its ranks, and why") {
  const RankEnd lost{.status = {}, .lost = true};
  CHECK(lost_host_report({{.name = "h2", .ranks = {2, 3}, .cause = "nothing was heard of it for 5 s"}},
                         {by_exit(1), by_signal(SIGTERM, SIGTERM), lost, lost}) ==
        "hvdrun: host h2 (ranks 2, 3) is lost: nothing was heard of it for 5 s\n"
        "hvdrun: the others: rank 0 exited with code 1; rank 1 had to be ended with SIGTERM\n");
}

TEST_CASE("where there are several hosts, the failed rank's is named") {
  const Failure failure{.rank = 1, .host = "h2", .pid = 9, .age = 1s, .last_lines = {"x"}};
  CHECK(
      failure_report(failure, {by_exit(0), by_exit(3)}).starts_with("hvdrun: rank 1 on h2 failed first: exit code 3"));
}

}  // namespace
}  // namespace hvd::launcher
