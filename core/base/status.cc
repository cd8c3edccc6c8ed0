#include "core/base/status.h"

namespace hvd {

const char* status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return "ok";
    case StatusCode::invalid_argument: return "invalid argument";
    case StatusCode::mismatch: return "mismatch";
    case StatusCode::aborted: return "aborted";
    case StatusCode::peer_lost: return "peer lost";
    case StatusCode::timeout: return "timeout";
    case StatusCode::not_initialized: return "not initialized";
    case StatusCode::shut_down: return "shut down";
    case StatusCode::unsupported: return "unsupported";
    case StatusCode::internal: return "internal";
  }
  return "unknown";
}

}  // namespace hvd
