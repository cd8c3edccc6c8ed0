// The messages between hvdrun and its keeper (keeper.h), one packet each. Pure.
//
// An environment may be larger than a packet: the encoded ChildStart is sent in as many `start_part` messages as
// needed. The `start` message that follows carries the descriptors: standard input, output and error, and those of
// ChildStart::inherited. Decoding throws Internal if a message is malformed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/processes/child_process.h"
#include "launcher/processes/exit_status.h"

namespace hvd::launcher {

// From hvdrun to the keeper.
struct KeeperRequest {
  enum class Kind : std::uint8_t { start_part, start, signal_ranks, signal_all, list_left, set_lease, renew_lease };
  Kind kind;
  std::int32_t value = 0;  // the signal, or the lease in milliseconds
  std::string part{};      // of an encoded ChildStart, kMaxStartPart bytes at most
  bool operator==(const KeeperRequest&) const = default;
};

std::string encode(const KeeperRequest& request);
KeeperRequest decode_keeper_request(std::string_view bytes);

// From the keeper to hvdrun.
struct KeeperReport {
  enum class Kind : std::uint8_t {
    started,       // pid; the answer to `start`
    not_started,   // text: the cause; the other answer to `start`
    left,          // pids; the answer to `list_left`
    ended,         // pid, status of a started process
    nothing_left,  // no descendant of the keeper is left
  };
  Kind kind;
  pid_t pid = -1;
  ExitStatus status{};
  std::string text{};
  std::vector<pid_t> pids{};
  bool operator==(const KeeperReport&) const = default;
};

inline constexpr std::size_t kMaxStartPart = 8000;     // bytes
inline constexpr std::size_t kMaxReportedPids = 1000;  // what fits into a packet; the rest is left out
inline constexpr std::size_t kMaxReportedText = 4096;  // bytes

std::string encode(const KeeperReport& report);
KeeperReport decode_keeper_report(std::string_view bytes);

// Leaves out the descriptors, except for the numbers of the inherited ones, and the open-file limit, which the keeper
// knows.
std::string encode_start(const ChildStart& start);
ChildStart decode_start(std::string_view bytes);

}  // namespace hvd::launcher
