#include "ops/nccl/nccl_communicator.h"

#include <sched.h>

#include <thread>
#include <utility>

#include "core/base/error.h"

namespace hvd::nccl {

namespace {

// The number of polls before sleeping in between, and the length of a sleep: a group of calls completes after some tens
// of microseconds, a new communicator after some hundred milliseconds.
constexpr int kLooks = 200;
constexpr Duration kNap = std::chrono::microseconds(100);

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<const Library> library, const UniqueId& id, int rank, int size,
                                   const AbortFlag& abort, Deadline deadline)
    : library_(std::move(library)), abort_(abort) {
  Config config;
  const Result result = call().init(&handle_, size, id, rank, &config);
  try {
    complete(result, "ncclCommInitRankConfig", deadline);
  } catch (...) {
    break_off();
    throw;
  }
}

bool NcclCommunicator::close(Deadline deadline) noexcept {
  try {
    complete(call().finalize(handle_), "ncclCommFinalize", deadline);
    library_->check(call().destroy(handle_), "ncclCommDestroy");
    handle_ = nullptr;
    return true;
  } catch (...) {
    return false;
  }
}

void NcclCommunicator::complete(Result result, const char* what, Deadline deadline) const {
  library_->check(result, what, handle_);
  if (handle_ == nullptr) throw Aborted(std::string("NCCL: ") + what + " has made nothing");
  for (int looks = 0;; ++looks) {
    Result state = Result::success;
    library_->check(call().async_error(handle_, &state), "ncclCommGetAsyncError", handle_);
    library_->check(state, what, handle_);
    if (state == Result::success) return;
    abort_.check();
    if (Clock::now() >= deadline) {
      throw Timeout(std::string("NCCL: ") + what +
                    " is not through: a rank may be stuck, or its network not reachable");
    }
    if (looks < kLooks) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void NcclCommunicator::check() const {
  Result state = Result::success;
  library_->check(call().async_error(handle_, &state), "ncclCommGetAsyncError", handle_);
  library_->check(state, "a collective on the GPU", handle_);
}

void NcclCommunicator::break_off() noexcept {
  if (Handle const handle = std::exchange(handle_, nullptr)) call().abort(handle);
}

}  // namespace hvd::nccl
