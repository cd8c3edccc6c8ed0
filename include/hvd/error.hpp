// The exceptions of hvd: one class per hvd_status. Included by hvd.hpp.
#pragma once

#include <stdexcept>
#include <string>

#include "hvd.h"

namespace hvd {
inline namespace v1 {

class Error : public std::runtime_error {
 public:
  Error(hvd_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  hvd_status status() const noexcept { return status_; }

 private:
  hvd_status status_;
};

template <hvd_status kStatus>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kStatus, message) {}
};

using InvalidArgument = ErrorOf<HVD_INVALID_ARGUMENT>;
using Mismatch = ErrorOf<HVD_MISMATCH>;
using Aborted = ErrorOf<HVD_ABORTED>;
using PeerLost = ErrorOf<HVD_PEER_LOST>;
using Timeout = ErrorOf<HVD_TIMEOUT>;
using NotInitialized = ErrorOf<HVD_NOT_INITIALIZED>;
using ShutDown = ErrorOf<HVD_SHUT_DOWN>;
using Unsupported = ErrorOf<HVD_UNSUPPORTED>;
using Internal = ErrorOf<HVD_INTERNAL>;

namespace detail {

inline void check(hvd_status status) {
  if (status == HVD_OK) return;
  const std::string message = hvd_last_error();
  switch (status) {
    case HVD_INVALID_ARGUMENT: throw InvalidArgument(message);
    case HVD_MISMATCH: throw Mismatch(message);
    case HVD_ABORTED: throw Aborted(message);
    case HVD_PEER_LOST: throw PeerLost(message);
    case HVD_TIMEOUT: throw Timeout(message);
    case HVD_NOT_INITIALIZED: throw NotInitialized(message);
    case HVD_SHUT_DOWN: throw ShutDown(message);
    case HVD_UNSUPPORTED: throw Unsupported(message);
    default: throw Internal(message);
  }
}

}  // namespace detail

}  // namespace v1
}  // namespace hvd
