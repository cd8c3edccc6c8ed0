// The runtime of this process, as Python sees it: start, end, identity, and what is left of it in a forked child.
// To be called with the GIL, which is dropped while waiting.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "hvd.h"

namespace hvd::python {

// Called once, when the module is loaded: from then on a fork() is noticed.
void watch_forks();

// True in a child forked from a process in which the runtime ran. The child has a copy of the runtime's memory, locks
// as they happened to be, and none of its threads: nothing but the identity may be asked there.
bool in_forked_child();

// Throws ValueError in such a child.
void refuse_in_forked_child();

void init();

// In a job of which Python knows: `broadcast`, called once on every rank, takes rank 0's bytes, None on the others, and
// returns rank 0's. What it raises is raised here.
void init_with(int rank, int size, int local_size, const pybind11::function& broadcast);

// Who has started this process, and this host's number of ranks: hvd_get_launch().
pybind11::tuple launch();

// Does nothing in a forked child, so that its exit leaves the parent's job alone.
void shutdown();

// Ends the job as a failure of this rank: hvd_fail(). Does nothing in a forked child.
void fail(const std::string& cause);

// Calls a function that Ctrl-C must not interrupt, not even where it begins: what has come until then is forgotten, and
// the process ignores SIGINT until the function returns. On the main thread.
pybind11::object call_uninterrupted(const pybind11::function& function, const pybind11::args& arguments);

bool is_initialized();

// Where this process stands; in a forked child, where its parent stands.
hvd_topology topology();

}  // namespace hvd::python
