// The messages between hvdrun and its keeper (keeper.h), a packet each. Pure.
//
// An environment may be larger than a packet: the encoded ChildStart comes in as many `start_part` as it takes, and the
// `start` that follows brings the process's descriptors: standard input, output and error, and those of
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

// From hvdrun.
struct KeeperRequest {
  enum class Kind : std::uint8_t { start_part, start, signal_ranks, signal_all, list_left, set_lease, renew_lease };
  Kind kind;
  std::int32_t value = 0;  // the signal, or the lease in milliseconds
  std::string part{};      // of a ChildStart: kMaxStartPart bytes at most
  bool operator==(const KeeperRequest&) const = default;
};

std::string encode(const KeeperRequest& request);
KeeperRequest decode_keeper_request(std::string_view bytes);

// From the keeper.
struct KeeperReport {
  enum class Kind : std::uint8_t {
    started,       // pid: the answer to `start`
    not_started,   // text: why, instead
    left,          // pids: the answer to `list_left`
    ended,         // pid, status: of a process that was started
    nothing_left,  // of all that were started so far
  };
  Kind kind;
  pid_t pid = -1;
  ExitStatus status{};
  std::string text{};
  std::vector<pid_t> pids{};
  bool operator==(const KeeperReport&) const = default;
};

inline constexpr std::size_t kMaxStartPart = 8000;     // bytes
inline constexpr std::size_t kMaxReportedPids = 1000;  // a packet's worth; those beyond are left out
inline constexpr std::size_t kMaxReportedText = 4096;  // bytes

std::string encode(const KeeperReport& report);
KeeperReport decode_keeper_report(std::string_view bytes);

// Without descriptors, except for the numbers of those that are inherited, and without the limit of open files, which
// the keeper knows.
std::string encode_start(const ChildStart& start);
ChildStart decode_start(std::string_view bytes);

}  // namespace hvd::launcher
