#include "launcher/loop/signal_source.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/loop/throw_errno.h"

namespace hvd::launcher {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalSource::SignalSource() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  // A closed reader (SIGPIPE) and a full file (SIGXFSZ, ulimit -f) are reported as errors of write(), not by signals.
  sigaction(SIGPIPE, &ignore, &original_pipe_);
  sigaction(SIGXFSZ, &ignore, &original_file_size_);

  struct sigaction plain {};  // if SIGCHLD were ignored, the kernel would discard exit codes
  plain.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &plain, &original_child_);

  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  sigaddset(&mask, SIGCONT);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) {
    if (!is_ignored(signal)) sigaddset(&mask, signal);
  }
  sigprocmask(SIG_BLOCK, &mask, &original_mask_);
  fd_.reset(signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) throw_errno("signalfd");
}

bool SignalSource::pending() const {
  pollfd ready{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return poll(&ready, 1, 0) > 0;
}

std::vector<int> SignalSource::take() {
  std::vector<int> result;
  signalfd_siginfo info;
  while (read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    result.push_back(static_cast<int>(info.ssi_signo));
  }
  return result;
}

void SignalSource::restore_original() const {
  sigaction(SIGPIPE, &original_pipe_, nullptr);
  sigaction(SIGXFSZ, &original_file_size_, nullptr);
  sigaction(SIGCHLD, &original_child_, nullptr);
  sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
}

}  // namespace hvd::launcher
