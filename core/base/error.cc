#include "core/base/error.h"

#include <sys/resource.h>

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

#include "core/base/status.h"

namespace hvd {

namespace {

std::string limit_text(int error_number) {
  rlimit limit{};
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    return " (this process may have " + std::to_string(limit.rlim_cur) + ": ulimit -n)";
  }
  if (error_number == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return " (this process may write files of " + std::to_string(limit.rlim_cur) + " bytes: ulimit -f)";
  }
  const std::string address_space = error_number == ENOMEM ? address_space_limit() : "";
  return address_space.empty() ? "" : " (this process may have " + address_space + ")";
}

}  // namespace

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

Status current_exception_status() {
  try {
    throw;
  } catch (const Error& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::internal, "out of memory");
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, error.what());
  } catch (...) {
    return Status(StatusCode::internal, "an exception of unknown type");
  }
}

std::string address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return std::to_string(limit.rlim_cur) + " bytes of address space: ulimit -v";
}

std::string error_text(int error_number) {
  return std::generic_category().message(error_number) + limit_text(error_number);
}

}  // namespace hvd
