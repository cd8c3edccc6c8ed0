#include "core/base/mutex.h"

#include <future>
#include <thread>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

// A value that one thread sets and others wait for.
class Mailbox {
 public:
  void set(int value) {
    {
      const MutexLock lock(mutex_);
      value_ = value;
    }
    changed_.notify_all();
  }
  bool wait_for(int value, Deadline deadline) {
    const MutexLock lock(mutex_);
    return changed_.wait_until(mutex_, deadline, [&]() REQUIRES(mutex_) { return value_ == value; });
  }
  bool is_locked() {
    return std::async(std::launch::async,
                      [this] {
                        if (!mutex_.try_lock()) return true;
                        const MutexLock lock(mutex_, std::adopt_lock);
                        return false;
                      })
        .get();
  }
  Mutex& mutex() { return mutex_; }

 private:
  Mutex mutex_;
  CondVar changed_;
  int value_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

TEST_CASE("a lock is held until its scope or unlock() ends it") {
  Mailbox mailbox;
  {
    MutexLock lock(mailbox.mutex());
    CHECK(mailbox.is_locked());
    lock.unlock();
    CHECK_FALSE(mailbox.is_locked());
  }
  CHECK_FALSE(mailbox.is_locked());
  {
    const MutexLock lock(mailbox.mutex());
    CHECK(mailbox.is_locked());
  }
  CHECK_FALSE(mailbox.is_locked());
}

TEST_CASE("a wait ends when its predicate is true, or at the deadline, and holds the lock then") {
  Mailbox mailbox;
  CHECK(mailbox.wait_for(0, deadline_after(0s)));
  CHECK_FALSE(mailbox.wait_for(1, deadline_after(1ms)));
  CHECK_FALSE(mailbox.is_locked());
  std::thread setter([&] {
    mailbox.set(1);
    mailbox.set(2);
  });
  CHECK(mailbox.wait_for(2, deadline_after(10s)));
  setter.join();
  CHECK_FALSE(mailbox.is_locked());
}
