// A number by which a job can be told from others.
#pragma once

#include <cstdint>

#include "core/net/authentication.h"

namespace hvd {

// Of the job's key, which cannot be guessed from it.
std::uint64_t job_number(const JobKey& key);

}  // namespace hvd
