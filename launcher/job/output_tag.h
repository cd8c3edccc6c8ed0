// What --tag-output puts before the lines of a rank, in the rank's colour on a terminal. Pure.
#pragma once

#include <string>

#include "launcher/job/host.h"
#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// Whether the user, and what TERM says of the terminal, allow colours. Any NO_COLOR but an empty one forbids them
// (https://no-color.org).
bool allows_colours(const Environment& environment);

// A number of the 256 colours of terminals, the same for every eighth rank. All have enough contrast to a black
// background and to a white one.
int colour_of_rank(int rank);

// As files and tags call it: "stdout" or "stderr".
const char* stream_name(Stream stream);

// "[3]<stdout>: ". Only the foreground is coloured, and only up to the colon: what a rank has switched on otherwise
// stays on.
std::string output_tag(int rank, Stream stream, bool coloured);

}  // namespace hvd::launcher
