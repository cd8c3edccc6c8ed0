#include "bindings/tensorflow/gpu_waiter.h"

#include <pthread.h>

#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace hvd::tf {

namespace {

class GpuWaiter {
 public:
  void add(hvd_work* work, std::function<void()> then) {
    const std::lock_guard lock(mutex_);
    queue_.push_back({work, std::move(then)});
    if (running_) return;
    std::thread thread([this] { run(); });
    pthread_setname_np(thread.native_handle(), "hvd-tf-gpu");
    thread.detach();
    running_ = true;
  }

 private:
  struct Entry {
    hvd_work* work;
    std::function<void()> then;
  };

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (queue_.empty()) {
        running_ = false;
        return;
      }
      const Entry next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      hvd_work_wait(next.work, -1);
      next.then();
    }
  }

  std::mutex mutex_;
  std::deque<Entry> queue_;  // guarded by mutex_
  bool running_ = false;     // guarded by mutex_; whether the thread exists
};

// Never destroyed: the thread may outlive main().
GpuWaiter& waiter() {
  static auto* const one = new GpuWaiter;
  return *one;
}

}  // namespace

void when_over(hvd_work* work, std::function<void()> then) { waiter().add(work, std::move(then)); }

}  // namespace hvd::tf
