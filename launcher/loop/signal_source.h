// Delivers hvdrun's signals through a descriptor (signalfd) that an event loop can watch.
//
// Constructed first in main, before any thread exists, so that all threads have these signals blocked. Signals that
// were ignored when hvdrun was started (nohup, a shell's background jobs) stay ignored.
#pragma once

#include <csignal>
#include <vector>

#include "core/net/socket.h"

namespace hvd::launcher {

class SignalSource {
 public:
  SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  // Readable when a signal is pending.
  int fd() const { return fd_.get(); }
  // Whether take() would return any signal.
  bool pending() const;
  // Returns the signals received since the last call, lowest number first.
  std::vector<int> take();

  // Restores the signal mask and dispositions that hvdrun was started with. Called in a forked child before exec;
  // async-signal-safe.
  void restore_original() const;

 private:
  sigset_t original_mask_;
  struct sigaction original_pipe_, original_file_size_, original_child_;
  FileDescriptor fd_;
};

}  // namespace hvd::launcher
