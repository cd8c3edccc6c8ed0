// The star of TCP connections between rank 0 and every other rank: control messages between hosts, and for all ranks
// the sign of life. A connection that closes without a goodbye is a lost rank.
//
// One thread ("hvd-links") sleeps in epoll and reads; senders write directly and leave the rest to it. When a rank is
// lost, rank 0 tells all others at once, from this thread, because the engine may be in the middle of a collective
// with the very rank that is gone.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/net/authentication.h"
#include "core/net/frame.h"
#include "core/rendezvous/store.h"
#include "core/rendezvous/topology.h"

namespace hvd {

class ControlLinks {
 public:
  // Called on the links' thread; must not block.
  using OnMessage = std::function<void(int from, Bytes payload)>;

  // All ranks must construct together; rank 0 listens on own_host and publishes its address in the store. Throws
  // Timeout that names the ranks that did not come.
  ControlLinks(const Topology& topology, Store& store, const JobKey& key, const std::string& own_host, AbortFlag& abort,
               const Log& log, OnMessage on_message, Deadline deadline);
  ~ControlLinks();

  // Any thread; never blocks.
  void send(int to, const Bytes& payload);
  void broadcast_abort(const Status& reason);

  // Sends what is queued and a goodbye to every peer, waits for that until the deadline, and stops the thread.
  void close(Deadline deadline);

  // See ControlChannel.
  void abandon_in_child() noexcept;

 private:
  void stop();

  enum class FrameKind : std::uint8_t { message = 1, goodbye = 2, abort = 3 };
  struct Link;

  void connect(Store& store, const JobKey& key, const std::string& own_host, Deadline deadline);
  void run();
  void serve(Link& link, std::uint32_t events);
  void read(Link& link);
  void handle_frame(Link& link, const Bytes& frame);
  void lose(Link& link, const std::string& how);
  void raise_and_tell(const Status& reason, int except_rank);
  void enqueue(Link& link, FrameKind kind, std::span<const std::byte> payload);
  static std::optional<std::size_t> send_some(Link& link);
  static void flush(Link& link);

  const Topology& topology_;
  AbortFlag& abort_;
  const Log& log_;
  const OnMessage on_message_;
  std::vector<std::unique_ptr<Link>> links_;
  FileDescriptor epoll_;
  FileDescriptor stop_event_;
  std::thread thread_;
};

}  // namespace hvd
