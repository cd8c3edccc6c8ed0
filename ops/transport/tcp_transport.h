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
// size() is the number of ranks of the mesh. A connection without posted operations is not watched: a peer that left
// after it had done its part is no error.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/futex.h"
#include "ops/transport/tcp_mesh.h"
#include "ops/transport/transport.h"

namespace hvd {

// The header of each message: 32 bytes, little endian, followed by `length` bytes of payload.
struct DataFrameHeader {
  static constexpr std::uint32_t kMagic = 0x64766802;

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

class TcpTransport final : public Transport {
 public:
  // Returns when all connections are established. Throws as connect_mesh does. `abort` outlives the transport.
  // `silence`: a wait() continues beyond its deadline while the peer's bytes have moved within this time.
  TcpTransport(const MeshSetup& setup, WaitPolicy policy, const AbortFlag& abort, Duration silence = {});
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override;
  RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override;
  void wait(RequestId request, Deadline deadline) override;
  bool wait_until(RequestId request, TimePoint until) override;

 private:
  struct Connection;
  struct Peer;

  Peer& peer_of(int rank);
  void activate(Connection& connection);
  // Makes progress on every active connection.
  void progress();
  void advance_sends(Connection& connection);
  void advance_receives(Connection& connection);
  // Returns whether the operation is complete; false only after `until`.
  bool await_completion(const PostedMessage& operation, TimePoint until, SpinCredit& credit, Duration silence = {});
  // Polls for as long as the policy allows; returns whether the operation is complete.
  bool look_busily(const PostedMessage& operation);
  // Sleeps until an active connection is ready, at most until `until`.
  void poll_active(TimePoint until);
  void flush_sends();
  // Handles a failed call: forgets all posted operations, since their memory belongs to the caller again, and throws
  // the abort flag's reason if it is raised (it explains why the peer left), otherwise the current exception.
  [[noreturn]] void fail();

  const int rank_;
  const int size_;
  const WaitPolicy policy_;
  const AbortFlag& abort_;
  const Duration silence_;
  std::map<int, std::unique_ptr<Peer>> peers_;  // by global rank
  std::vector<Connection*> active_;             // those with posted operations
  OperationWindow operations_;
  SpinCredit credit_;          // of wait()
  SpinCredit arrival_credit_;  // of wait_until(): for peers that may be busy with something else
  bool failed_ = false;
};

}  // namespace hvd
