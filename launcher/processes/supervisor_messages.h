// The messages between hvdrun and its supervisor (supervisor.h), of one packet each (core/net/socket.h), some with file
// descriptors; and the lease that hvdrun renews by them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "launcher/processes/child_process.h"

namespace hvd::launcher {

// A message from hvdrun to the supervisor. An environment may be larger than a packet: the encoded ChildStart is sent
// in as many `start_part` messages as needed. The `start` message that follows carries the descriptors: standard input,
// output and error, and those of ChildStart::inherited. Decoding throws Internal if a message is malformed.
struct SupervisorRequest {
  enum class Kind : std::uint8_t {
    start_part,
    start,
    signal_ranks,
    signal_all,
    list_left,
    set_lease,
    end_groups,  // from now on what an ended rank leaves in its process group is killed
    kill_rank,
    renew_lease
  };
  Kind kind;
  std::int32_t value = 0;    // the signal, the lease in milliseconds, or the rank's pid
  std::string part{};        // of an encoded ChildStart, kMaxStartPart bytes at most
  std::uint32_t number = 0;  // of a start with its parts, or list_left; its answer has it, too
  bool operator==(const SupervisorRequest&) const = default;
  static void fields(auto& self, const auto& each) { each(self.kind, self.value, self.part, self.number); }
};

std::string encode(const SupervisorRequest& request);
SupervisorRequest decode_supervisor_request(std::string_view bytes);

// From the supervisor to hvdrun.
struct SupervisorReport {
  enum class Kind : std::uint8_t {
    started,       // pid; the answer to `start`
    not_started,   // text: the cause; the other answer to `start`
    left,          // pids; the answer to `list_left`
    ended,         // pid, status of a started process
    nothing_left,  // no descendant of the supervisor is left
  };
  Kind kind;
  pid_t pid = -1;
  ExitStatus status{};
  std::string text{};
  std::vector<pid_t> pids{};
  std::uint32_t number = 0;  // of the request that this answers
  bool operator==(const SupervisorReport&) const = default;
  static void fields(auto& self, const auto& each) {
    each(self.kind, self.pid, self.status, self.text, self.pids, self.number);
  }
};

inline constexpr std::size_t kMaxStartPart = 8000;     // bytes
inline constexpr std::size_t kMaxReportedPids = 1000;  // what fits into a packet; the rest is left out
inline constexpr std::size_t kMaxReportedText = 4096;  // bytes

std::string encode(SupervisorReport report);
SupervisorReport decode_supervisor_report(std::string_view bytes);

// The lease that hvdrun's heartbeats renew; decides in the supervisor whether hvdrun has been silent for too long.
// Pure.
class SupervisorLease {
 public:
  // Starts the lease at `now`. A length of zero or less removes it.
  void set(Duration length, TimePoint now) {
    length_ = length > Duration::zero() ? std::optional(length) : std::nullopt;
    renewed_ = now;
  }
  void renew(TimePoint now) { renewed_ = now; }

  // When the lease expires; empty if there is no lease.
  std::optional<Deadline> deadline() const {
    if (!length_) return std::nullopt;
    return renewed_ + *length_;
  }

  // A supervisor that asks more than half a lease late was not running itself: then the lease starts again.
  bool has_expired(TimePoint now) {
    const auto end = deadline();
    if (!end || now < *end) return false;
    if (now < *end + *length_ / 2) return true;
    renewed_ = now;
    return false;
  }

 private:
  std::optional<Duration> length_;
  TimePoint renewed_{};
};

}  // namespace hvd::launcher
