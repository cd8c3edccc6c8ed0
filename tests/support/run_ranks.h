// Ranks as threads of this process: each has a Runtime, and all use one Store.
//
// The fastest way to run the whole stack: real shared memory, real sockets, no process to start. Checks inside the
// ranks use require(), since Catch2's macros belong to the test's own thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/runtime/runtime.h"
#include "tests/support/call_arguments.h"
#include "tests/support/require.h"

namespace hvd::testing {

struct Layout {
  std::vector<int> ranks_by_host;  // {2, 1}: ranks 0 and 1 on one host, rank 2 on another
  bool shared_memory = true;       // false: TCP also inside a host
  bool gpus = false;               // for tests that put tensors on GPUs: this one does

  int size() const;
  std::string name() const;
};

struct RunOptions {
  Layout layout;
  Environment environment;      // HVD_* settings beyond those of the layout
  bool measured_links = false;  // as in a job; else they are kTenGigabit (link_costs.h), whatever the machine
  std::function<void(int rank, Environment& environment)> change_for = nullptr;  // what one rank has differently
  std::function<void(DataPlane&)> change_data_plane = nullptr;                   // after a rank's backends were made
};

// Where the test program itself is a rank of a job that mpirun or mpiexec has started, run_ranks() runs the body once,
// as that rank, in a job of all processes, and leaves out layouts of other numbers of ranks: so the same tests serve
// backends that need processes.
//
// Runs `body` on every rank and waits for all. The first exception that is not an echo of another rank's death is
// thrown again, with its rank in the text.
void run_ranks(const RunOptions& options, const std::function<void(Runtime&)>& body);

// Submits and waits; throws the operation's Error. Ten minutes at most.
void perform(Runtime& runtime, const Call& call);

// The Status with which the call ends, at submission or later.
Status outcome(Runtime& runtime, const Call& call);

// The same of a synchronous call, which may be performed directly; Timeout if it is not done in time.
Status outcome_of_run(Runtime& runtime, const Call& call, Duration timeout = std::chrono::minutes(1));

}  // namespace hvd::testing
