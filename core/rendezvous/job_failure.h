// That the job has failed, said through its store by who has started it: for ranks that wait for others while they
// meet, which have no connections yet that could break.
#pragma once

#include <string>

#include "core/rendezvous/store.h"
#include "core/rendezvous/store_source.h"

namespace hvd {

// Which rank has failed, and how. For who has the store.
void set_job_failure(StoreSource& store, const std::string& cause);

// Throws Aborted with the reason if the job has failed, or does so by the deadline. A store that cannot say is passed
// over.
void check_job_failure(Store& store, Deadline deadline);

}  // namespace hvd
