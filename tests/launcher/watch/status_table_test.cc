#include "launcher/watch/status_table.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("each rank's numbers are a line under their names") {
  RankStatus status;
  status.pid = 17;
  status.operations = 300;
  status.bytes = 1200;
  status.locked_steps = 30;
  status.rounds = 5;
  status.lock_state = 2;
  status.exposed_time = 7us;
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

}  // namespace
}  // namespace hvd::launcher
