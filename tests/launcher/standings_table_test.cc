#include "launcher/standings_table.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("each rank's numbers are a line under their names") {
  Standing standing;
  standing.pid = 17;
  standing.operations = 300;
  standing.bytes = 1200;
  standing.locked_steps = 30;
  standing.rounds = 5;
  standing.lock_state = 2;
  standing.exposed_time = 7us;
  standing.since_progress = 9us;
  standing.sets = {{.process_set = 0, .submitted = 301, .done = 300}, {.process_set = 1, .submitted = 8, .done = 8}};
  standing.open.resize(1);
  standing.more_open = 2;
  standing.stall = "waiting for rank 1";
  CHECK(
      standings_table({{.rank = 0, .host = "h1", .standing = standing}, {.rank = 1, .host = "h\t2", .standing = {}}}) ==
      "rank\thost\tpid\tstopped\toperations\tbytes\tlocked_steps\trounds\tlock_state\texposed_ns\tsince_progress_ns"
      "\tsubmitted\tin_flight\tstalled\n"
      "0\th1\t17\t0\t300\t1200\t30\t5\t2\t7000\t9000\t301\t3\t1\n"
      "1\th?2\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\n");
}

}  // namespace
}  // namespace hvd::launcher
