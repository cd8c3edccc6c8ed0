// A stream of the fake driver: a thread that performs what is put into it in order, each after a random delay.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace hvd::testing {

class FakeStream;

// What was put into the streams of a capture, in that order, which is one that their waits allow.
struct FakeGraph {
  std::mutex mutex;
  std::vector<std::function<void()>> tasks;  // guarded by mutex, as all below
  std::map<FakeStream*, bool> joined;        // but the first stream: whether another one waits for its last task
  FakeStream* first = nullptr;
};

// One record of an event. Who waits for the event, or asks, means the latest one.
struct FakeRecord {
  std::mutex mutex;
  std::condition_variable changed;
  bool happened = false;                          // guarded by mutex
  std::shared_ptr<FakeGraph> captured = nullptr;  // and never happens
  FakeStream* stream = nullptr;                   // of a captured one
};

class FakeStream {
 public:
  FakeStream(int device, unsigned long long id, unsigned seed, int longest_delay_us)
      : device_(device), id_(id), random_(seed), longest_(longest_delay_us) {
    thread_ = std::thread([this] { run(); });
  }
  // Performs what is left.
  ~FakeStream() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  int device() const { return device_; }
  // No other stream has it, or will.
  unsigned long long id() const { return id_; }

  void put(std::function<void()> task) {
    if (const auto graph = capture()) {
      const std::lock_guard lock(graph->mutex);
      graph->tasks.push_back(std::move(task));
      if (this != graph->first) graph->joined[this] = false;
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  // Where tasks are put instead, until it is set to null.
  void set_capture(std::shared_ptr<FakeGraph> graph) {
    const std::lock_guard lock(mutex_);
    capture_ = std::move(graph);
  }
  std::shared_ptr<FakeGraph> capture() {
    const std::lock_guard lock(mutex_);
    return capture_;
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
  }

  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()>& task = tasks_.front();  // what others put behind it leaves it where it is
      lock.unlock();
      if (longest_ > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % static_cast<unsigned>(longest_ + 1)));
      }
      task();
      lock.lock();
      tasks_.pop_front();
      changed_.notify_all();
    }
  }

  const int device_;
  const unsigned long long id_;
  std::mt19937 random_;  // the thread's
  const int longest_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_; the front one may be under way
  bool ended_ = false;                       // guarded by mutex_
  std::shared_ptr<FakeGraph> capture_;       // guarded by mutex_
  std::thread thread_;
};

}  // namespace hvd::testing
