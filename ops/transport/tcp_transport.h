// A transport over TCP connections between every two ranks.
//
// A message is a 32-byte header (DataFrameHeader) and the payload, sent from, and received into, the caller's memory.
// There is no thread: posting a send tries to send at once, everything else happens inside wait(). A wait first polls
// with non-blocking reads, since a poll() costs more than a short message takes, and yields the CPU in between, since
// the sender may need it. Then, or if polling was recently unsuccessful, it sleeps in poll() on all connections with
// posted operations, and wakes every kAbortPollInterval to check the abort flag.
//
// Fast networks take several connections to fill. With K connections to a peer, the i-th message in either direction
// uses connection i mod K. As each connection keeps its order, the messages of a direction keep theirs.
//
// A rank that has waited for half its inactivity timeout without a byte from the awaited peer sends a keepalive,
// a header without payload, to all peers. Ranks that wait for this one restart their limit when they receive it. In a
// chain of waiting ranks the last one therefore times out first, and its error names the rank that is stuck.
//
// size() is the number of ranks of the mesh. A connection without posted operations is not watched: a peer that leaves
// after it has done its part causes no error.
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
// a keepalive, which is no message, only `sender` is used.
struct DataFrameHeader {
  static constexpr std::uint32_t kMagic = 0x64766806;
  static constexpr std::uint32_t kKeepaliveMagic = 0x64766807;

  std::uint32_t magic = kMagic;
  std::uint32_t sender = 0;  // global rank
  std::uint32_t process_set = 0;
  std::uint32_t step = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;

  Tag tag() const;
};

static_assert(sizeof(DataFrameHeader) == 32 && std::is_trivially_copyable_v<DataFrameHeader>);
static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

// Returns when all connections are established. Throws as connect_mesh does. `abort` outlives the transport.
// `inactivity_timeout`: see above; zero: none. A wait() continues beyond its deadline as long as bytes have
// moved between this rank and the peer, keepalives included, within this time.
std::unique_ptr<Transport> make_tcp_transport(const MeshSetup& setup, WaitPolicy policy, const AbortFlag& abort,
                                              Duration inactivity_timeout = {});

}  // namespace hvd
