// Delays threads of this process at random places: during its lifetime, a signal whose handler sleeps interrupts them
// at random. Sooner or later every step of every algorithm is delayed.
//
// One at a time. It takes SIGUSR2.
#pragma once

#include <atomic>
#include <thread>

namespace hvd::testing {

class Jitter {
 public:
  explicit Jitter(unsigned seed);
  ~Jitter();
  Jitter(const Jitter&) = delete;
  Jitter& operator=(const Jitter&) = delete;

  // How often a thread was interrupted so far.
  int interruptions() const { return interruptions_; }

 private:
  void interrupt_at_random(unsigned seed);

  std::atomic<bool> ended_{false};
  std::atomic<int> interruptions_{0};
  std::thread thread_;
};

}  // namespace hvd::testing
