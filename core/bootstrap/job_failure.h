// Reports through the store, by the launcher, that the job has failed: for ranks in the rendezvous, which have no
// connections yet that could break.
#pragma once

#include <string>

#include "core/bootstrap/store.h"
#include "core/bootstrap/store_origin.h"

namespace hvd {

// Which rank has failed, and how. Called by the owner of the store.
void set_job_failure(StoreSource& store, const std::string& cause);

// Throws Aborted with the reason if the job has failed, or fails by the deadline. Does nothing if the store cannot
// answer.
void check_job_failure(Store& store, Deadline deadline);

}  // namespace hvd
