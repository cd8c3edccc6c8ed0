#include "ops/plugin/watched_thread.h"

#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/futex.h"
#include "core/base/process.h"

namespace hvd {

namespace {

// How long a call may take to end after the job was aborted.
constexpr Duration kStopTimeout = std::chrono::seconds(1);

}  // namespace

struct WatchedThread::Shared {
  explicit Shared(const WaitPolicy& policy) : waiting(policy), serving(policy) {}

  Signal begun;  // number of calls so far
  Signal ended;
  std::function<void()> work;  // of the last call; empty: the thread must end
  Status result;
  AdaptiveWait waiting;  // of the caller
  AdaptiveWait serving;  // of the thread
  std::thread thread;
};

WatchedThread::WatchedThread(std::string_view name, const WaitPolicy& policy)
    : shared_(std::make_shared<Shared>(policy)) {
  shared_->thread = start_thread(name, [shared = shared_] { serve(shared); });
}

WatchedThread::~WatchedThread() {
  if (lost_) {
    shared_->thread.detach();
    return;
  }
  shared_->work = nullptr;
  shared_->begun.increment_and_wake();
  shared_->thread.join();
}

void WatchedThread::serve(const std::shared_ptr<Shared>& shared) {
  for (std::uint32_t calls = 0;; ++calls) {
    while (shared->serving.wait_change(shared->begun, calls, Deadline::max(), nullptr) == calls) continue;
    if (!shared->work) return;
    try {
      shared->work();
      shared->result = Status();
    } catch (...) {
      shared->result = current_exception_status();
    }
    shared->ended.increment_and_wake();
  }
}

void WatchedThread::run(const std::function<void()>& work, Deadline deadline, const AbortFlag& abort,
                        const std::string& what) {
  const std::uint32_t before = shared_->ended.value.load(std::memory_order_relaxed);
  shared_->work = work;
  shared_->begun.increment_and_wake();
  try {
    if (shared_->waiting.wait_change(shared_->ended, before, deadline, &abort) == before) {
      lost_ = true;
      throw Timeout(what);
    }
  } catch (const Timeout&) {
    throw;
  } catch (const Error&) {
    lost_ = shared_->ended.wait_change(before, deadline_after(kStopTimeout), nullptr) == before;
    throw;
  }
  if (!shared_->result.ok()) throw Error(shared_->result);
}

}  // namespace hvd
