#include "launcher/watch/rank_status.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

constexpr TimePoint kNow{1000s};

RecordedOperation operation(std::uint64_t sequence, FlightState state, Duration ago, int tensors = 1) {
  RecordedOperation one;
  one.number = one.sequence = sequence;
  one.name = "w" + std::to_string(sequence);
  one.shape = {4, 5};
  one.tensors = tensors;
  one.bytes = 80 * tensors;
  one.state = state;
  one.submitted = one.started = kNow - ago;
  if (!one.under_way()) one.ended = one.submitted + 10ms;
  return one;
}

RankStatus status_of(const std::vector<RecordedOperation>& operations) {
  return make_rank_status(FlightSnapshot(), operations, {}, kNow);
}

TEST_CASE("a status has what is open, the oldest first, and how far each set has come") {
  auto other = operation(3, FlightState::done, 2s);
  other.process_set = 5;
  const RankStatus status =
      status_of({operation(6, FlightState::done, 3s), other, operation(7, FlightState::performing, 1500ms),
                 operation(8, FlightState::submitted, 1s, 3)});
  REQUIRE(status.open.size() == 2);
  CHECK(status.open[0] == OperationStatus{.state = OperationStatus::State::performs,
                                          .sequence = 7,
                                          .what = "allreduce",
                                          .name = "w7",
                                          .shape = "float32[4, 5]",
                                          .age = 1500ms});
  CHECK(status.open[1].state == OperationStatus::State::waits);
  CHECK(status.open[1].shape == "3 tensors, 240 bytes");
  CHECK(status.sets == std::vector<ProcessSetStatus>{{0, 8, 6}, {5, 3, 3}});
  CHECK(status.since_progress == 1s);
  CHECK_FALSE(status_of({}).since_progress);
}

TEST_CASE("what a failed job has given up is open; an operation that failed by itself is not") {
  FlightSnapshot job_failed;
  job_failed.job_has_failed = true;
  const std::vector<RecordedOperation> first{operation(1, FlightState::failed, 3s),
                                             operation(2, FlightState::done, 2s)};
  const std::vector<RecordedOperation> last{operation(1, FlightState::done, 3s), operation(2, FlightState::failed, 2s)};
  CHECK(status_of(first).open.empty());
  CHECK(status_of(last).open.empty());
  CHECK(make_rank_status(job_failed, first, {}, kNow).open.empty());
  const RankStatus failed = make_rank_status(job_failed, last, {}, kNow);
  REQUIRE(failed.open.size() == 1);
  CHECK(failed.open[0].state == OperationStatus::State::given_up);
  CHECK(failed.open[0].age == 10ms);
}

TEST_CASE("of many open operations and a long stack the first part is kept") {
  std::vector<RecordedOperation> many;
  for (std::uint64_t i = 1; i <= 100; ++i) many.push_back(operation(i, FlightState::submitted, 1s));
  for (auto& one : many) one.process_set = static_cast<std::int32_t>(one.number);
  const RankStatus status =
      make_rank_status(FlightSnapshot(), many, {.text = std::string(100'000, 'x'), .package = {}}, kNow);
  CHECK(status.open.size() == 8);
  CHECK(status.more_open == 92);
  CHECK(status.sets.size() == 64);
  CHECK(status.stack.size() == 16 << 10);
}

std::string place(std::string_view stack) {
  const auto frame = frame_of_script(stack, "/venv/lib/python3.11/site-packages/hvd");
  return frame ? to_string(*frame) : "";
}

TEST_CASE("where the script is, follows from what faulthandler writes") {
  CHECK(place("Thread 0x00007f0000000001 (most recent call first):\n"
              "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n"
              "  File \"/home/me/other_thread.py\", line 1 in run\n"
              "\n"
              "Current thread 0x00007f0000000002 (most recent call first):\n"
              "  File \"/venv/lib/python3.11/site-packages/hvd/torch/functions.py\", line 90 in synchronize\n"
              "  File \"/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py\", line 700 in __next__\n"
              "  File \"/home/me/train.py\", line 48 in load_batch\n"
              "  File \"/home/me/train.py\", line 90 in <module>\n") == "train.py:48 in load_batch");
}

TEST_CASE("without a current thread it is the oldest, which comes last") {
  CHECK(place("Thread 0x1 [worker] (most recent call first):\n  File \"a.py\", line 1 in worker\n\n"
              "Thread 0x2 (most recent call first):\n  File \"b.py\", line 2 in main\n") == "b.py:2 in main");
  CHECK(place("Current thread 0x1 (most recent call first):\n  File \"a.py\", line 1 in first\n\n"
              "Thread 0x2 (most recent call first):\n  File \"b.py\", line 2 in main\n") == "a.py:1 in first");
}

TEST_CASE("in libraries alone it is the innermost outside hvd's folder") {
  CHECK(place("Current thread 0x1 (most recent call first):\n"
              "  File \"/venv/lib/python3.11/site-packages/hvd/basics.py\", line 1 in init\n"
              "  File \"/venv/lib/python3.11/site-packages/torch/a.py\", line 2 in b\n"
              "  File \"/usr/lib/python3.11/runpy.py\", line 3 in c\n") == "a.py:2 in b");
  CHECK(place("Current thread 0x1 (most recent call first):\n  File \"/home/hvd/train.py\", line 3 in go\n") ==
        "train.py:3 in go");
}

TEST_CASE("what is no stack has no frame, and odd lines do no harm") {
  CHECK(place("").empty());
  CHECK(place("Current thread 0x1 (most recent call first):\n  <no Python frame>\n").empty());
  CHECK(place("  File \"").empty());
  CHECK(place("  File \"a.py\", line x in b\n").empty());
  CHECK(place("  File \"a.py\", line 99999999999999999999 in b").empty());
  CHECK(place("  File \"a\", line 1\", line 7 in b\x1b[2J") == "a\", line 1:7 in b?[2J");
  CHECK(place("  File \"a.py\", line 7").substr(0, 6) == "a.py:7");
  CHECK(place(std::string("  File \"a.py\", line 7 in\0b", 26)).substr(0, 6) == "a.py:7");
}

TEST_CASE("each rank's numbers are a line under their names") {
  RankStatus status;
  status.pid = 17;
  status.counters.operations = 300;
  status.counters.bytes = 1200;
  status.counters.locked_steps = 30;
  status.counters.rounds = 5;
  status.counters.lock_state = 2;
  status.counters.exposed_time = 7us;
  status.since_progress = 9us;
  status.sets = {{.process_set = 0, .submitted = 301, .done = 300}, {.process_set = 1, .submitted = 8, .done = 8}};
  status.open.resize(1);
  status.more_open = 2;
  status.stall = "waiting for rank 1";
  CHECK(status_table({{.rank = 0, .host = "h1", .status = status}, {.rank = 1, .host = "h\t2", .status = {}}}) ==
        "rank\thost\tpid\tstopped\toperations\tbytes\tlocked_steps\trounds\tlock_state\texposed_ns\tsince_progress_ns"
        "\tsubmitted\tin_flight\tstalled\n"
        "0\th1\t17\t0\t300\t1200\t30\t5\t2\t7000\t9000\t301\t3\t1\n"
        "1\th?2\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\n");
}

TEST_CASE("rank status: the table of an elastic job says where each process takes part") {
  const std::string table = status_table({{.rank = 2, .host = "h1", .status = {}, .epoch_rank = EpochRank{5, 1}},
                                          {.rank = 7, .host = "h1", .status = {}, .epoch_rank = {}}});
  const std::string none = "\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-";
  CHECK_THAT(table, Catch::Matchers::Contains("\tstalled\tepoch\tepoch_rank\n"));
  CHECK_THAT(table, Catch::Matchers::Contains("\n2\th1" + none + "\t5\t1\n7\th1" + none + "\t-\t-\n"));
}

TEST_CASE("rank status: shards of parameter servers have a table of their own") {
  RankStatus serves;
  serves.pid = 17;
  serves.waited = 3us;
  serves.shards = {{.number = 0,
                    .answers = true,
                    .pushes = 5,
                    .pulls = 6,
                    .rows = 7,
                    .bytes = 800,
                    .staleness_median = 1,
                    .staleness_worst = 9,
                    .queue = 64,
                    .waiting = 2,
                    .slowest = 3},
                   {.number = 1}};
  const std::vector<StatusOfRank> processes = {
      {.rank = 0, .host = "h1", .status = {}},
      {.rank = 1, .host = "h1", .status = serves, .epoch_rank = {}, .server = 0},
      {.rank = 2, .host = "h2", .status = {}, .epoch_rank = {}, .server = 1}};
  const std::string table = status_table(processes);
  CHECK_THAT(table,
             Catch::Matchers::EndsWith("\n\nserver\thost\tpid\tstopped\tshard\tanswers\tpushes\tpulls\trows\tbytes\t"
                                       "staleness_median\tstaleness_worst\tqueue\twaiting\tslowest\twaited_ns\n"
                                       "0\th1\t17\t0\t0\t1\t5\t6\t7\t800\t1\t9\t64\t2\t4\t3000\n"
                                       "0\th1\t17\t0\t1\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t3000\n"
                                       "1\th2\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\n"));
  CHECK(std::count(table.begin(), table.end(), '\n') == 7);  // servers have no line among the ranks
  CHECK_THAT(stacks_text(processes),
             Catch::Matchers::Contains("server 0 (host h1): pid 17\n  shard 0: 7 rows of 800 bytes, 6 pulls, 5 pushes, "
                                       "stale by 1 update in the median and 9 at most; 64 bytes of requests queued; 2 "
                                       "requests wait for worker 3\n  copy of shard 1: "));
}

}  // namespace
}  // namespace hvd::launcher
