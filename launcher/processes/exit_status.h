// How a process ended: with an exit code or by a signal. Pure.
#pragma once

#include <string>

namespace hvd::launcher {

struct ExitStatus {
  bool by_signal = false;
  int value = 0;  // the exit code, or the signal's number
  bool core_dumped = false;

  static ExitStatus from_wait(int wait_status);

  bool ok() const { return !by_signal && value == 0; }
  // As shells report it: 128 + signal for a process that was killed.
  int exit_code() const { return by_signal ? 128 + value : value; }
  bool operator==(const ExitStatus&) const = default;
};

// "SIGSEGV"; "signal 41" for one without a name.
std::string signal_name(int signal);

}  // namespace hvd::launcher
