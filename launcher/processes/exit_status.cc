#include "launcher/processes/exit_status.h"

#include <sys/wait.h>

#include <cstring>

namespace hvd::launcher {

ExitStatus ExitStatus::from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return {.by_signal = true, .value = WTERMSIG(wait_status), .core_dumped = WCOREDUMP(wait_status) != 0};
  }
  return {.by_signal = false, .value = WEXITSTATUS(wait_status), .core_dumped = false};
}

std::string signal_name(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  return abbreviation != nullptr ? std::string("SIG") + abbreviation : "signal " + std::to_string(signal);
}

}  // namespace hvd::launcher
