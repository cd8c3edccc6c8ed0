#include "ops/gpu/nccl_library.h"

#include <sched.h>

#include <thread>
#include <utility>

#include "core/base/error.h"

namespace hvd::nccl {

namespace {

constexpr const char* kSoname = "libnccl.so.2";

// The number of polls before the thread sleeps between them, and the length of a sleep: a group of calls completes
// after some tens of microseconds, a new communicator after some hundred milliseconds.
constexpr int kPollsBeforeSleep = 200;
constexpr Duration kPollInterval = std::chrono::microseconds(100);

DynamicLibrary open_nccl(const std::string& wanted) {
  try {
    if (!wanted.empty()) return DynamicLibrary::open(wanted);
    DynamicLibrary present = DynamicLibrary::loaded(kSoname);
    return present ? present : DynamicLibrary::open(kSoname);
  } catch (const Unsupported& error) {
    throw Unsupported(std::string("there is no NCCL: ") + error.what());
  }
}

}  // namespace

Library::Library(const std::string& wanted) : library_(open_nccl(wanted)) {
  check(table_.version(&version_), "ncclGetVersion");
  if (version_ >= kOldestVersion) return;
  throw Unsupported(describe() + " is too old: " + version_text(kOldestVersion) + " or later is needed");
}

std::string Library::describe() const {
  return "NCCL " + version_text(version_) + ", " + library_.file_of(reinterpret_cast<const void*>(table_.version));
}

void Library::check(Result result, const char* what, Handle communicator) const {
  if (result == Result::success || result == Result::in_progress) return;
  std::string text = std::string("NCCL: ") + what + ": " + table_.error_text(result);
  if (table_.last_error != nullptr) {
    const char* const last = table_.last_error(communicator);
    if (last != nullptr && *last != '\0') text += " (" + std::string(last) + ")";
  }
  if (result == Result::remote_error) throw PeerLost(text);
  if (result == Result::invalid_argument || result == Result::invalid_usage) throw Internal(text);
  throw Aborted(text);
}

std::string version_text(int version) {
  if (version < 10000) version = version / 1000 * 10000 + version % 1000;  // before 2.9 the minor number had one digit
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<const Library> library, const UniqueId& id, int rank, int size,
                                   const AbortFlag& abort_flag, Deadline deadline)
    : library_(std::move(library)), abort_(abort_flag) {
  Config config;
  const Result result = call().communicator.init(&handle_, size, id, rank, &config);
  try {
    complete(result, "ncclCommInitRankConfig", deadline);
  } catch (...) {
    abort();
    throw;
  }
}

bool NcclCommunicator::close(Deadline deadline) noexcept {
  try {
    for (void* const registration : registrations_) {
      complete(call().communicator.deregister(handle_, registration), "ncclCommDeregister", deadline);
    }
    registrations_.clear();
    complete(call().communicator.finalize(handle_), "ncclCommFinalize", deadline);
    library_->check(call().communicator.destroy(handle_), "ncclCommDestroy");
    handle_ = nullptr;
    return true;
  } catch (...) {
    return false;
  }
}

void NcclCommunicator::complete(Result result, const char* what, Deadline deadline) const {
  library_->check(result, what, handle_);
  if (handle_ == nullptr) throw Aborted(std::string("NCCL: ") + what + " returned no communicator");
  for (int polls = 0;; ++polls) {
    Result state = Result::success;
    library_->check(call().communicator.async_error(handle_, &state), "ncclCommGetAsyncError", handle_);
    library_->check(state, what, handle_);
    if (state == Result::success) return;
    abort_.check();
    if (Clock::now() >= deadline) {
      throw Timeout(std::string("NCCL: ") + what +
                    " has not completed: a rank may be stuck, or its network not reachable");
    }
    if (polls < kPollsBeforeSleep) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
  }
}

Op NcclCommunicator::scaled_sum(Type type, const Scalar& scale, Deadline deadline) {
  const auto known = scaled_sums_.find(type);
  if (known != scaled_sums_.end()) {
    if (known->second.scale == scale) return known->second.op;
    const Op old = known->second.op;
    scaled_sums_.erase(known);
    complete(call().communicator.destroy_op(old, handle_), "ncclRedOpDestroy", deadline);
  }
  Op op = Op::sum;
  alignas(8) Scalar copy = scale;
  complete(call().communicator.create_scaled_sum(&op, copy.data(), type, kScalarOnHost, handle_),
           "ncclRedOpCreatePreMulSum", deadline);
  scaled_sums_.emplace(type, ScaledSum{.op = op, .scale = scale});
  return op;
}

void NcclCommunicator::register_memory(void* memory, std::size_t bytes, Deadline deadline) {
  if (call().communicator.register_memory == nullptr || call().communicator.deregister == nullptr) return;
  void* registration = nullptr;  // NCCL leaves it null where it registers nothing
  complete(call().communicator.register_memory(handle_, memory, bytes, &registration), "ncclCommRegister", deadline);
  if (registration != nullptr) registrations_.push_back(registration);
}

void NcclCommunicator::check() const {
  Result state = Result::success;
  library_->check(call().communicator.async_error(handle_, &state), "ncclCommGetAsyncError", handle_);
  library_->check(state, "a collective on the GPU", handle_);
}

void NcclCommunicator::abort() noexcept {
  if (Handle const handle = std::exchange(handle_, nullptr)) call().communicator.abort(handle);
}

}  // namespace hvd::nccl
