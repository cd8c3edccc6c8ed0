#include "tests/support/jitter.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <random>
#include <vector>

namespace hvd::testing {

namespace {

std::atomic<long> pause_ns{0};

void sleep_in_handler(int) {
  const int saved = errno;
  const timespec pause{.tv_sec = 0, .tv_nsec = pause_ns.load(std::memory_order_relaxed)};
  nanosleep(&pause, nullptr);
  errno = saved;
}

std::vector<pid_t> threads_of_this_process() {
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.push_back(std::stoi(entry.path().filename()));
  }
  return threads;
}

}  // namespace

Jitter::Jitter(unsigned seed) {
  struct sigaction action {};
  action.sa_handler = sleep_in_handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
  thread_ = std::thread([this, seed] { interrupt_at_random(seed); });
}

// The handler stays: a signal may still be on its way.
Jitter::~Jitter() {
  ended_ = true;
  thread_.join();
}

void Jitter::interrupt_at_random(unsigned seed) {
  std::minstd_rand random(seed);
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  std::vector<pid_t> threads;
  for (int i = 0; !ended_; ++i) {
    if (i % 16 == 0) threads = threads_of_this_process();
    const pid_t thread = threads[random() % threads.size()];
    pause_ns = static_cast<long>(random() % 300'000);
    if (thread != self && syscall(SYS_tgkill, getpid(), thread, SIGUSR2) == 0) ++interruptions_;
    std::this_thread::sleep_for(std::chrono::microseconds(20 + random() % 100));
  }
}

}  // namespace hvd::testing
