// The only exception hierarchy. Exceptions stay inside one call stack: they are caught where a bucket, the engine, a
// thread body or the C ABI ends, and are converted to a Status there.
#pragma once

#include <stdexcept>
#include <string>

#include "core/base/status.h"

namespace hvd {

class Error : public std::runtime_error {
 public:
  Error(StatusCode code, const std::string& message) : Error(Status(code, message)) {}
  explicit Error(const Status& status)
      : std::runtime_error(status.message()), code_(status.code()), culprit_(status.culprit()) {}

  StatusCode code() const { return code_; }
  Status status() const { return Status(code_, what(), culprit_); }

 private:
  StatusCode code_;
  int culprit_;
};

template <StatusCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

using InvalidArgument = ErrorOf<StatusCode::invalid_argument>;
using Mismatch = ErrorOf<StatusCode::mismatch>;
using Aborted = ErrorOf<StatusCode::aborted>;
using PeerLost = ErrorOf<StatusCode::peer_lost>;
using Timeout = ErrorOf<StatusCode::timeout>;
using Unsupported = ErrorOf<StatusCode::unsupported>;
using Internal = ErrorOf<StatusCode::internal>;

// The Status of the exception being handled; call only inside a catch block.
Status current_exception_status();

// The text of an errno value, for messages of failed system calls. If a limit of this process is the reason, it names
// the limit and the option of ulimit that changes it: "Too many open files (this process may have 64: ulimit -n)".
std::string error_text(int error_number);

// "2000000 bytes of address space: ulimit -v", if this process's address space is limited; else empty.
std::string address_space_limit();

}  // namespace hvd
