// A server's connection to a worker, or to the primary of a shard whose replica it has: the peer, what its first
// unanswered request waits for, and its answers; and all connections of a server. Used by the server's thread.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/net/authentication.h"
#include "core/net/socket.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/replication.h"
#include "parameters/server.h"

namespace hvd {

inline constexpr int kNoNumber = -1;  // of no shard, or no worker

class ServerConnection {
 public:
  ServerConnection(std::unique_ptr<Pipe> made, bool shares) : pipe(std::move(made)), shares_memory(shares) {}

  // All answers return whether there was room; if not, nothing has happened.
  bool answer(const PsRequest& request) { return answer_text(request, StatusCode::ok, ""); }
  bool answer_error(const PsRequest& request, const Error& error) {
    return answer_text(request, error.code(), error.what());
  }
  bool answer_text(const PsRequest& request, StatusCode code, std::string_view text);

  // Memory for an answer with a payload of so many bytes, until it is committed; null if there is none yet.
  std::byte* room_for(std::size_t payload);
  bool has_room_for(std::size_t payload);
  // Whether there is now what the request in front lacked.
  bool has_got_room();

  // The request in front waits; empty: for slower workers. Returns false.
  bool wait_for(const char* what = "");
  // When it is to be warned of that the request in front still waits; Deadline::max(): never, or it was.
  Deadline stall_deadline(Duration stall_warning) const {
    const bool is_to_tell = waits_since && !stall_told && stall_warning > Duration::zero();
    return is_to_tell ? *waits_since + stall_warning : Deadline::max();
  }

  // The answer that begins at `begin` is held back until the shard's replica has what it answers, if there is one.
  void hold_until_replicated(const ReplicatedShard& replicated, std::uint64_t begin);
  // Passes on those of which the replica has that.
  void release(const ReplicatedShard& replicated);
  bool holds_answers() const { return !held_.empty(); }

  // A connection that is lost is found out when it is read.
  void flush();

  std::unique_ptr<Pipe> pipe;
  bool shares_memory = false;
  int shard = kNoNumber;
  int worker = kNoNumber;   // since it has said hello
  bool is_primary = false;  // the other server, which sends its shard
  bool has_left = false;
  bool is_answering = false;               // has to answer the request in front when a snapshot is complete
  std::size_t unread = 0;                  // bytes that could not be answered yet
  std::optional<TimePoint> waits_since{};  // its request in front waits
  const char* waits_for = "";
  bool stall_told = false;

 private:
  struct Held {
    std::uint64_t until;     // ReplicatedShard::position()
    std::uint64_t position;  // where the answer begins, in the pipe
  };

  std::deque<Held> held_;
  std::size_t lacks_room_ = 0;  // bytes, for the answer to the request in front
};

// All connections of a server, and the descriptors that it sleeps on.
class ServerConnections {
 public:
  // `log` outlives this. Throws Internal.
  ServerConnections(Duration lease, const Log& log);

  // From now on there are connections to accept. Returns where.
  ServerAddresses listen(const ServerOptions& options, const JobKey& key);
  void accept();
  void close() {  // all, and accepts no more
    all_.clear();
    acceptor_.reset();
  }

  std::span<ServerConnection> all() { return all_; }
  std::span<const ServerConnection> all() const { return all_; }
  ServerConnection erase(std::size_t i);
  // Whether the server that sends that shard is connected.
  bool has_primary_of(int shard) const {
    return std::ranges::any_of(all_, [&](const auto& each) { return each.is_primary && each.shard == shard; });
  }

  // The caller's descriptors, too.
  void watch(int fd, std::uint32_t events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  // Waits for events, and tells the pipes theirs. Returns all of them; valid until the next call.
  std::span<const epoll_event> wait(Duration timeout);
  // Ends wait(). Any thread, and signal handlers.
  void wake() noexcept;

  // Turns without a request before the server sleeps: some tens of microseconds where it has a core, else a few
  // yields.
  int idle_limit() const { return sharing_ == 0 ? 0 : is_oversubscribed() ? 32 : 1024; }
  // Between two such turns.
  void rest() const;
  // Between begin_sleep() and end_sleep() workers announce their requests by events. False: a request has come before,
  // and the server must not wait.
  bool begin_sleep();
  void end_sleep() {
    for (ServerConnection& client : all_) client.pipe->is_to_sleep(false);
  }
  // When accept() is due, or Pipe::check_lease().
  Deadline next_deadline() const;

 private:
  std::optional<Peer> accept_now();
  bool is_oversubscribed() const { return sharing_ + 1 > cpus_; }

  const Duration lease_;
  const Log& log_;
  const int cpus_;
  FileDescriptor epoll_, wake_fd_;
  std::array<epoll_event, 64> events_{};
  std::optional<Acceptor> acceptor_;
  std::vector<ServerConnection> all_;
  int sharing_ = 0;  // of them, that share memory
  bool is_accept_told_ = false;
};

}  // namespace hvd
