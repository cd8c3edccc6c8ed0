// The number that identifies a job.
#pragma once

#include <cstdint>

#include "core/net/authentication.h"

namespace hvd {

// A hash of the job key that identifies the job; the key cannot be recovered from it.
std::uint64_t job_number(const JobKey& key);

}  // namespace hvd
