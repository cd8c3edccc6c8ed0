// The outcome of an operation, as a value.
//
// A Status crosses a thread, a rank or a language, because the thread that fails is not the thread that waits. Inside
// one call stack the same facts are an Error (error.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace hvd {

// Wire and ABI values: append only; include/hvd.h repeats them.
enum class StatusCode : std::uint8_t {
  ok = 0,
  invalid_argument = 1,  // the call is wrong; nothing was sent, but where an output turned out not to fit
  mismatch = 2,          // the ranks disagree; every rank of the set receives it
  aborted = 3,           // the job as a whole was given up
  peer_lost = 4,         // a process died or became unreachable
  timeout = 5,           // a deadline passed; the message says what was waited for
  not_initialized = 6,   // no runtime in this process
  shut_down = 7,         // this rank or another one has shut the runtime down
  unsupported = 8,       // understood, but no backend can do it
  internal = 9,          // a defect of hvd, or a protocol violation by a peer
};

const char* status_code_name(StatusCode code);

// In place of a rank number: no rank is the culprit, or it is unknown.
inline constexpr int kNobody = -1;

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, int culprit = kNobody)
      : code_(code), message_(std::move(message)), culprit_(culprit) {}

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // If the whole job has ended with this status: the rank of the job whose end or failure was the cause.
  int culprit() const { return culprit_; }

  bool operator==(const Status&) const = default;

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
  int culprit_ = kNobody;
};

}  // namespace hvd
