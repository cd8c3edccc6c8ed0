#include "launcher/processes/event_loop.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace hvd::launcher {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw_errno("epoll_create1");
}

void EventLoop::watch(int fd, std::uint32_t events, Callback callback) {
  epoll_event event{.events = events, .data = {.u64 = ++last_number_}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw_errno("epoll_ctl");
  }
  numbers_[fd] = last_number_;
  callbacks_[last_number_] = std::make_shared<const Callback>(std::move(callback));
}

void EventLoop::forget(int fd) {
  const auto watch = numbers_.extract(fd);
  if (!watch) return;
  callbacks_.erase(watch.mapped());
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::run_once(std::optional<Deadline> deadline) {
  for (const Timer* timer : timers_) {
    if (timer->deadline_ && (!deadline || *timer->deadline_ < *deadline)) deadline = timer->deadline_;
  }
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), poll_timeout(deadline));
  for (int i = 0; i < count; ++i) {
    const WatchNumber number = events[static_cast<std::size_t>(i)].data.u64;  // a copy: epoll_event is packed
    const auto found = callbacks_.find(number);
    if (found == callbacks_.end()) continue;  // forgotten by a callback of this iteration
    const auto keep_alive = found->second;
    (*keep_alive)();
  }
  const TimePoint now = Clock::now();
  std::vector<Timer*> due;
  for (Timer* timer : timers_) {
    if (timer->deadline_ && *timer->deadline_ <= now) due.push_back(timer);
  }
  for (Timer* timer : due) {
    // Destroyed, unset or postponed by a callback of this iteration; or another timer now has its address.
    if (!timers_.contains(timer) || !timer->deadline_ || *timer->deadline_ > now) continue;
    timer->deadline_.reset();
    timer->callback_();
  }
}

Timer::Timer(EventLoop& loop, EventLoop::Callback callback) : loop_(loop), callback_(std::move(callback)) {
  loop_.timers_.insert(this);
}

Timer::~Timer() { loop_.timers_.erase(this); }

void Timer::set(std::optional<Deadline> deadline) { deadline_ = deadline; }

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

int SignalSource::fd() const { return fd_.get(); }

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
