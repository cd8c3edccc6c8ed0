// A transport over TCP connections between every two ranks.
//
// A message is a 32-byte header (DataFrameHeader) and the payload, sent from and received into the poster's memory.
// There is no thread: posting a send tries to send at once, everything else happens inside wait(). A wait first polls
// with non-blocking reads, since a poll() costs more than a short message takes, and yields the CPU in between, since
// the sender may need it. Then, or if polling was recently unsuccessful, it sleeps in poll() on all connections with
// posted operations, and wakes every kAbortPollInterval to check the abort flag.
//
// Fast networks take several connections to fill. Of K connections to a peer, message i to it is sent on number i mod
// K, and message i from it is read from number i mod K: as each connection keeps the order, so do all together.
//
// A rank that has waited for half of the silence that it allows, without a byte of a message from the awaited peer,
// sends a notice, a header without a payload, to all its peers. For those that wait for a message of this rank the
// silence begins anew, and ends after its own: of ranks that wait for each other, the one at the end of the chain gives
// up first, and names the rank that does not wait.
//
// size() is the number of ranks of the mesh. A connection without posted operations is not watched: a peer that left
// after it had done its part is no error.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/base/abort_flag.h"
#include "core/base/futex.h"
#include "ops/transport/tcp_mesh.h"
#include "ops/transport/transport.h"

namespace hvd {

// The header of each message: 32 bytes, little endian, followed by `length` bytes of payload (docs/wire-format.md). In
// a notice, which is no message, only `sender` is used.
struct DataFrameHeader {
  static constexpr std::uint32_t kMagic = 0x64766806;
  static constexpr std::uint32_t kNoticeMagic = 0x64766807;

  std::uint32_t magic = kMagic;
  std::uint32_t sender = 0;  // global rank
  std::uint32_t process_set = 0;
  std::uint32_t step = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;

  Tag tag() const { return {.process_set = process_set, .step = step, .sequence = sequence}; }
};

static_assert(sizeof(DataFrameHeader) == 32 && std::is_trivially_copyable_v<DataFrameHeader>);
static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

// Returns when all connections are established. Throws as connect_mesh does. `abort` outlives the transport. `silence`:
// a wait() continues beyond its deadline while the peer's bytes, notices included, have moved within this time.
std::unique_ptr<Transport> make_tcp_transport(const MeshSetup& setup, WaitPolicy policy, const AbortFlag& abort,
                                              Duration silence = {});

}  // namespace hvd
