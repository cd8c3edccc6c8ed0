#include "core/base/thread.h"

#include <pthread.h>
#include <sys/resource.h>

#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/error_text.h"

namespace hvd {
namespace {

// The limits that pthread_create does not tell apart: of processes and threads, and of the stack's address space.
std::string limits() {
  std::string text;
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += "this user may have " + std::to_string(limit.rlim_cur) + " processes and threads: ulimit -u";
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    text += text.empty() ? "" : "; ";
    text += "this process may have " + std::to_string(limit.rlim_cur) + " bytes of address space: ulimit -v";
  }
  return text.empty() ? "" : " (" + text + ")";
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
