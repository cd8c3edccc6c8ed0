// The tags that --tag-output puts before the lines of a rank, in the rank's colour on a terminal. Pure.
#pragma once

#include <string>

#include "launcher/job/host.h"
#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// Whether the user and the type of terminal (TERM) allow colours. Any NO_COLOR but an empty one forbids them
// (https://no-color.org).
bool allows_colours(const Environment& environment);

// An index into the 256 colours of terminals; every eighth rank has the same. All have enough contrast on a black and
// on a white background.
int colour_of_rank(int rank);

// The name in files and tags: "stdout" or "stderr".
const char* stream_name(Stream stream);

// "[3]<stdout>: ". Colours only the foreground, and only up to the colon: other attributes set by a rank stay set.
std::string output_tag(int rank, Stream stream, bool coloured);

}  // namespace hvd::launcher
