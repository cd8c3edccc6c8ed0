// Copying past the caches, for memory that nobody on this CPU reads soon.
//
// A plain store first fetches the line that it is about to overwrite. A streaming store sends whole lines to memory
// without asking for them: half the traffic for what does not fit into the caches anyway, and no line taken away from
// the CPU that read it last. For what does fit it is several times slower.
#pragma once

#include <cstddef>

namespace hvd {

// False where the instruction set has no such stores; stream() is a plain copy then.
extern const bool kCanStream;

// Any alignment. Followed by finish_streaming() before others are told that the bytes are there: such stores are not
// ordered by a release store.
void stream(std::byte* destination, const std::byte* source, std::size_t bytes);
void finish_streaming();

}  // namespace hvd
