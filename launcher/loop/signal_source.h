// The signals that hvdrun receives, as something an event loop can wait for.
//
// Constructed first thing in main, before any thread exists, so that all threads have these signals blocked. Those that
// whoever started hvdrun had set to be ignored (nohup, a shell's background jobs) stay ignored.
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

  // Readable when a signal has come.
  int fd() const { return fd_.get(); }
  // Whether take() would return any.
  bool pending() const;
  // The signals that have come since the last call, lowest number first.
  std::vector<int> take();

  // In a forked child, before exec: everything as hvdrun found it. Async-signal-safe.
  void restore_original() const;

 private:
  sigset_t original_mask_;
  struct sigaction original_pipe_, original_file_size_, original_child_;
  FileDescriptor fd_;
};

}  // namespace hvd::launcher
