// A parameter server's connection of a worker, or of the other server that has a shard: whose it is, what the request
// in front waits for, and the answers. Used by the server's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/status.h"
#include "parameters/held_shard.h"
#include "parameters/message.h"
#include "parameters/pipe.h"

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

  // The answer that begins at `begin` is held back until the shard's replica has what it answers, if there is one.
  void hold_until_replicated(const HeldShard& held, std::uint64_t begin);
  // Passes on those of which the replica has that.
  void release(HeldShard& held);
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
    std::uint64_t until;     // HeldShard::position()
    std::uint64_t position;  // where the answer begins, in the pipe
  };

  std::deque<Held> held_;
  std::size_t lacks_room_ = 0;  // bytes, for the answer to the request in front
};

}  // namespace hvd
