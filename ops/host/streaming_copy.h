// Copies that bypass the caches, for memory that this CPU will not read soon.
//
// A plain store first fetches the line that it overwrites. A streaming store sends whole lines to memory without
// requesting them: half the traffic for data that does not fit into the caches, and no line is taken away from the CPU
// that read it last. For data that fits it is several times slower.
#pragma once

#include <cstddef>

namespace hvd {

// False if the instruction set has no such stores; stream() is a plain copy then.
extern const bool kCanStream;

// Any alignment. Call finish_streaming() before publishing the bytes: a release store does not order such stores.
void stream(std::byte* destination, const std::byte* source, std::size_t bytes);
void finish_streaming();

}  // namespace hvd
