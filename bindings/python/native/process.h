// The runtime of this process for Python: start, end, identity, and behaviour in a forked child. All functions require
// the GIL, and release it while they wait.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "hvd.h"

namespace hvd::python {

// Called once, when the module is loaded. The exception class is defined in Python.
void import_exceptions();

// Throws if the status is not HVD_OK, with the text of hvd_last_error(): no other hvd call may precede it. An invalid
// call is a ValueError; every other failure is hvd.exceptions.HorovodInternalError, which elastic training catches.
void check(hvd_status status);

// Releases the GIL for a scope. Cheaper than pybind11's, which also supports interpreters that call back.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// Checks the status of a call that is made without the GIL.
template <typename Call>
void check_released(const Call& call) {
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = call();
  }
  check(status);
}

// The longest delay before a waiting thread handles a signal such as Ctrl-C.
inline constexpr std::int64_t kSliceUs = 100'000;

// Nothing if the status only says that the wait has lasted for as long as it may.
inline std::optional<hvd_status> unless_timeout(hvd_status status) {
  return status == HVD_TIMEOUT ? std::nullopt : std::optional(status);
}

// Calls wait_for(timeout_us), without the GIL, until it returns a status, which is checked; signals are handled in
// between. False at the timeout, if any.
template <typename WaitFor>
bool wait_in_slices(std::optional<double> timeout_seconds, const WaitFor& wait_for) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (;;) {
    std::int64_t slice_us = kSliceUs;
    if (timeout_seconds) {
      const double left = *timeout_seconds - std::chrono::duration<double>(Clock::now() - start).count();
      slice_us = static_cast<std::int64_t>(std::clamp(left * 1e6, 0.0, static_cast<double>(kSliceUs)));
    }
    std::optional<hvd_status> status;
    {
      const GilRelease released;
      status = wait_for(slice_us);
    }
    if (status) {
      check(*status);
      return true;
    }
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    if (timeout_seconds && slice_us == 0) return false;
  }
}

// Called once, when the module is loaded: detects fork() from then on.
void watch_forks();

// True in a child forked from a process in which the runtime ran. The child has a copy of the runtime's memory, locks
// in an arbitrary state, and none of its threads: only the identity may be queried there.
bool in_forked_child();

// Throws ValueError in a forked child.
void refuse_in_forked_child();

void init();
// hvd_init_standby(). `joined` takes no arguments.
void init_standby(const pybind11::function& joined);

// Joins a job that Python describes. `broadcast`, called once on every rank, takes rank 0's bytes (None on the other
// ranks) and returns rank 0's bytes. Its exceptions are raised here.
void init_with(int rank, int size, int local_size, const pybind11::function& broadcast);

// Returns the launcher of this process, and the number of ranks on this host: hvd_get_launch().
pybind11::tuple launch();

// Returns the epoch of an elastic job: its number, whether it has newcomers, and the change: hvd_get_epoch().
pybind11::tuple epoch();
bool stands_by();
void report_synchronized();

// From now on a SIGTERM is a notice that this process is about to be taken away, unless it comes from its parent, the
// launcher, which ends the job so.
void watch_preemption();
// Reports such a notice, once: hvd_report_preempted().
void report_preemption();
// Reports that this process leaves an elastic job that ends early, and has saved what is to be kept.
void report_leaving();

// Does nothing in a forked child, so that its exit does not affect the parent's job.
void shutdown();

// Aborts the job because this rank failed: hvd_fail(). Does nothing in a forked child.
void fail(const std::string& cause);

// Calls a function that Ctrl-C must not interrupt: discards a SIGINT that is pending at its beginning, and ignores
// SIGINT until the function returns. Main thread only.
pybind11::object call_uninterrupted(const pybind11::function& function, const pybind11::args& arguments);

bool is_initialized();

// The position of this process in the job; in a forked child, that of its parent.
hvd_topology topology();

}  // namespace hvd::python
