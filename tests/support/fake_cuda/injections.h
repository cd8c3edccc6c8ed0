// Which call of which function is to fail, and how, and how often each was called: the table behind both fakes. Any
// thread.
#pragma once

#include <map>
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
    calls_.clear();
  }
  // Calls since clear() of the functions whose names begin so.
  int calls(const std::string& prefix) {
    const std::lock_guard lock(mutex_);
    int calls = 0;
    for (auto at = calls_.lower_bound(prefix); at != calls_.end() && at->first.starts_with(prefix); ++at) {
      calls += at->second;
    }
    return calls;
  }
  // What this call is to return; 0: what it would anyway.
  int of(const char* function, int who) {
    const std::lock_guard lock(mutex_);
    ++calls_[function];
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
  std::vector<Injection> list_;       // guarded by mutex_
  std::map<std::string, int> calls_;  // guarded by mutex_; by function
};

}  // namespace hvd::testing
