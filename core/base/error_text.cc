#include "core/base/error_text.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

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
  return "";
}

}  // namespace

std::string error_text(int error_number) {
  return std::generic_category().message(error_number) + limit_text(error_number);
}

}  // namespace hvd
