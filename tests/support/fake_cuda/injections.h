// Which call of which function is to fail, and how: the table behind both fakes. Any thread.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace hvd::testing {

class Injections {
 public:
  void add(const char* function, int who, int after, int result) {
    const std::lock_guard lock(mutex_);
    list_.push_back({function, who, after, result});
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    list_.clear();
  }
  // What this call is to return; 0: what it would anyway.
  int of(const char* function, int who) {
    const std::lock_guard lock(mutex_);
    for (Injection& injection : list_) {
      if (injection.function != function || (injection.who != -1 && injection.who != who)) continue;
      if (injection.after-- <= 0) return injection.result;
    }
    return 0;
  }

 private:
  struct Injection {
    std::string function;
    int who;
    int after;
    int result;
  };
  std::mutex mutex_;
  std::vector<Injection> list_;  // guarded by mutex_
};

}  // namespace hvd::testing
