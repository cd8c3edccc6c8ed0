#include "core/base/thread.h"

#include <pthread.h>
#include <sys/resource.h>

#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/error_text.h"

namespace hvd {
namespace {

// pthread_create does not report which limit was reached.
std::string limits() {
  std::string text;
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += "`ulimit -u`, " + std::to_string(limit.rlim_cur) + " processes and threads of this user; ";
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += "`ulimit -v`, " + std::to_string(limit.rlim_cur) + " bytes of address space; ";
  return " (the limit may be: " + text + "pids.max of the container or cgroup)";
}

}  // namespace

std::thread start_thread(std::string_view name, std::function<void()> body) {
  std::string shown(name.substr(0, 15));
  try {
    return std::thread([shown, body = std::move(body)] {
      pthread_setname_np(pthread_self(), shown.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    throw Internal("cannot start thread " + shown + ": " + error_text(error.code().value()) + limits());
  }
}

}  // namespace hvd
