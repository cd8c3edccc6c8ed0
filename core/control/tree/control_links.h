// The TCP connections between neighbours in the control tree. They carry messages between hosts, and detect failures on
// all edges. Only a process set inside one host has none. A connection that closes without a goodbye is a lost rank.
//
// One thread ("hvd-links") sleeps in epoll and reads; senders write directly and leave the rest to it. When a rank is
// lost, its neighbours notify theirs, and so on, at once and from this thread, because the engine may be in the middle
// of a collective with the very rank that is lost.
//
// A host that is silent for the length of the lease is lost too (core/net/socket.h). On an idle connection the
// kernel detects that; a sent message starts a timer, which wakes the thread a few times a second until all is
// delivered.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"
#include "core/control/tree/control_tree.h"
#include "core/net/authentication.h"
#include "core/net/frame.h"

namespace hvd {

class ControlLinks {
 public:
  // Called on the links thread; must not block.
  using OnMessage = std::function<void(int from, Bytes payload)>;
  using OnBreak = std::function<void(std::uint64_t lock_number)>;
  using OnAbort = std::function<void(const Status& reason)>;

  // All ranks must construct together; those with children listen on local_host and publish their address in the store.
  // Throws Timeout that names a rank that did not come. `on_abort` notifies all ranks of the job of its end; empty: the
  // links do, and their topology is the whole job.
  ControlLinks(const Topology& topology, const ControlTree& tree, Store& store, const JobKey& key,
               const std::string& local_host, Duration lease, AbortFlag& abort, const Log& log, OnMessage on_message,
               OnBreak on_break, OnAbort on_abort, Deadline deadline);
  ~ControlLinks();

  // Any thread; never blocks.
  void send(int to, const Bytes& payload);
  void broadcast_abort(const Status& reason) { notify_neighbours(reason, -1); }
  // Calls on_break on every other rank, along the tree. Each number is sent once, on the first call, and not after a
  // higher one.
  void request_break(std::uint64_t lock_number) { forward_break(lock_number, -1); }

  // Sends what is queued and a goodbye to every peer, waits for that until the deadline, and stops the thread.
  void close(Deadline deadline);

  // See ControlChannel.
  void abandon_in_child() noexcept;

 private:
  void stop();

  enum class FrameKind : std::uint8_t { message = 1, goodbye = 2, abort = 3, break_lock = 4 };
  class Link;

  void connect_neighbours(const ControlTree& tree, Store& store, const JobKey& key, const std::string& local_host,
                          Deadline deadline);
  void accept_children(const ControlTree& tree, Acceptor& acceptor, Store& store, Deadline deadline);
  void watch_links();
  void run();
  void read(Link& link);
  void check_leases();
  void handle_frame(Link& link, const Bytes& frame);
  void lose(Link& link, const std::string& how);
  void fail(const Status& own);
  void raise_and_notify(const Status& reason, int except_rank);
  void notify_neighbours(const Status& reason, int except_rank);
  bool forward_break(std::uint64_t lock_number, int except_rank);
  void enqueue(Link& link, FrameKind kind, std::span<const std::byte> payload);
  void start_timer();

  const Topology& topology_;
  const Duration lease_;
  AbortFlag& abort_;
  const Log& log_;
  const OnMessage on_message_;
  const OnBreak on_break_;
  const OnAbort on_abort_;
  std::atomic<bool> abort_sent_{false};            // the reason of the job's end has been sent
  std::atomic<bool> timing_{false};                // the timer is running
  std::atomic<std::uint64_t> break_requested_{0};  // the highest number of a lock sent or received
  std::vector<std::unique_ptr<Link>> links_;
  FileDescriptor epoll_;
  FileDescriptor stop_event_;
  FileDescriptor timer_;
  std::thread thread_;
};

}  // namespace hvd
