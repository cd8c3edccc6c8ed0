#include "bindings/c/instance.h"

#include <cxxabi.h>
#include <pthread.h>

#include <cstdlib>
#include <thread>
#include <typeinfo>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error.h"

namespace hvd {

namespace {

// How long hvd_shutdown() waits for the calls of other threads to return after all their operations have ended.
constexpr Duration kReturnTimeout = std::chrono::seconds(5);

// Separate from OwnPointer, whose destructor makes thread-local access slower.
constinit thread_local CachedObject<Runtime> cached;

// Gives the thread's pointer back when it ends. A thread that calls hvd even afterwards takes another one for good.
class OwnPointer {
 public:
  explicit OwnPointer(HazardPointers& pointers) : pointers_(pointers) {}
  OwnPointer(const OwnPointer&) = delete;
  OwnPointer& operator=(const OwnPointer&) = delete;
  ~OwnPointer() {
    cached = {};
    if (own_ != nullptr) HazardPointers::give_back(*std::exchange(own_, nullptr));
  }

  HazardPointers::Pointer* get() {
    if (own_ == nullptr) own_ = &pointers_.take();
    return own_;
  }

 private:
  HazardPointers& pointers_;
  HazardPointers::Pointer* own_ = nullptr;
};

// Describes the exception that ends the process, to follow a rank's name: "raised std::runtime_error: bad data".
std::string uncaught_text() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "called std::terminate()";
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr),
                                                         std::free);
  std::string text = std::string("raised ") + (name ? name.get() : type->name());
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    text += std::string(": ") + error.what();
  } catch (...) {  // of a type without a message
  }
  return text;
}

void refuse_if_forked(const Instance& instance) {
  if (instance.forked()) {
    throw Error(StatusCode::not_initialized,
                "hvd cannot be used in a forked child of a process that uses it: start it with exec instead");
  }
}

}  // namespace

Instance::Instance() {
  // Data loaders fork. Reads without the lock: a child has one thread, and another thread may have held the lock.
  pthread_atfork(nullptr, nullptr, []() NO_THREAD_SAFETY_ANALYSIS {
    Instance& instance = get();
    const bool is_used = instance.in_use_ || instance.connections_ > 0;
    if (!is_used || instance.forked_.exchange(true)) return;
    if (instance.runtime_) instance.runtime_->abandon_in_child();
  });
}

Instance& Instance::get() {
  static auto* const instance = new Instance();
  return *instance;
}

std::string& Instance::last_error() {
  thread_local std::string text;
  return text;
}

void Instance::init(const std::optional<Rendezvous>& rendezvous) {
  refuse_if_forked(*this);
  const MutexLock lifecycle(lifecycle_);
  if (current()) return;
  join(process_environment(), rendezvous);
}

void Instance::init_standby(std::function<void()> joined) {
  refuse_if_forked(*this);
  const MutexLock lifecycle(lifecycle_);
  if (initialized()) return;
  Environment environment = process_environment();
  const auto expected_rank = epoch_ == 0 ? find_expected_rank(environment) : std::nullopt;
  if (!expected_rank) return join(environment, std::nullopt);
  in_use_ = true;
  standby_environment_ = std::move(environment);
  const MutexLock lock(mutex_);
  expected_rank_ = expected_rank;
  joined_ = std::move(joined);
  stands_by_ = true;
}

// Another thread may have done it by now.
void Instance::leave_standby() {
  MutexLock lifecycle(lifecycle_);
  if (!stands_by_) return;
  join(standby_environment_, std::nullopt);
  const std::function<void()> joined = std::exchange(joined_, nullptr);
  lifecycle.unlock();
  if (joined) joined();
}

void Instance::join(const Environment& environment, const std::optional<Rendezvous>& rendezvous) {
  in_use_ = true;
  try {
    JoinedJob joined = join_job(environment, rendezvous, ++epoch_);
    const MutexLock lock(mutex_);
    runtime_ = std::move(joined.runtime);
    member_ = std::move(joined.member);
    job_services_ = std::move(joined.services);
    is_launched_ = joined.is_launched;
    stands_by_ = false;
    ++changes_;
    if (earlier_terminate_ == nullptr) earlier_terminate_ = std::set_terminate(on_terminate);
  } catch (...) {
    stands_by_ = false;
    in_use_ = false;
    throw;
  }
}

void Instance::shut_down() {
  if (forked()) return;
  const MutexLock lifecycle(lifecycle_);
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<EpochMember> member;
  bool is_launched = false;
  {
    const MutexLock lock(mutex_);
    runtime = std::move(runtime_);
    is_launched = is_launched_;
    member = std::move(member_);
    job_services_.reset();
    stands_by_ = false;
    ++changes_;
  }
  if (runtime) {
    runtime->shut_down();
    const auto end = member ? runtime->flight().ended_by_another() : std::nullopt;
    if (end && end->culprit >= 0) member->report_unreachable(end->culprit);
    if (is_launched) runtime->let_cause_end_first();
    // Calls on other threads may use it a little longer, and its resources are to be released when this one returns.
    users_.retire(std::move(runtime), deadline_after(kReturnTimeout));
  }
  caller_memory_.drop_unused_arenas(nullptr);
  in_use_ = false;
}

void Instance::fail(const std::string& cause) {
  if (forked()) return;
  const std::shared_ptr<Runtime> runtime = current();
  if (!runtime) return;
  runtime->fail(cause);
  if (const auto own = member()) {
    own->report_failing(runtime->flight().ended_by_another() ? "has failed after another one" : cause);
  }
}

// Called for an uncaught C++ exception.
void Instance::on_terminate() {
  Instance& instance = get();
  try {
    instance.fail(uncaught_text());
    if (const auto runtime = instance.forked() ? nullptr : instance.current()) runtime->let_cause_end_first();
  } catch (...) {  // the process ends in any case
  }
  if (instance.earlier_terminate_ != nullptr) instance.earlier_terminate_();
  std::abort();
}

void Instance::count_connection(int change) { connections_ += change; }

void* Instance::allocate(std::size_t bytes) { return caller_memory_.allocate(runtime()->arena(), bytes); }

void Instance::free(void* memory) {
  if (forked()) return caller_memory_.free_in_child(memory);
  const std::shared_ptr<Runtime> runtime = current();
  caller_memory_.free(memory, runtime ? runtime->arena() : nullptr);
}

void Instance::keep(std::shared_ptr<void> on_device) { caller_memory_.keep(std::move(on_device)); }

bool Instance::forked() const { return forked_.load(std::memory_order_relaxed); }

bool Instance::initialized() const { return !forked() && (stands_by_ || current() != nullptr); }

std::shared_ptr<Runtime> Instance::current() const {
  const MutexLock lock(mutex_);
  return runtime_;
}

std::optional<ExpectedRank> Instance::expected_rank() const {
  if (!stands_by_ || forked()) return std::nullopt;
  const MutexLock lock(mutex_);
  return expected_rank_;
}

RuntimeInUse Instance::runtime() {
  refuse_if_forked(*this);
  RuntimeInUse used;
  while (!used.take(cached, changes_)) ask_anew();
  return used;
}

RuntimeInUse Instance::joined_runtime() {
  if (!stands_by_) return runtime();
  throw Error(StatusCode::not_initialized, "this process stands by, and has not joined the elastic job yet");
}

std::shared_ptr<const Metrics> Instance::metrics() {
  refuse_if_forked(*this);  // before the lock, which another thread may have held at the fork
  {
    const MutexLock lock(mutex_);
    if (of_server_) return of_server_;
  }
  return joined_runtime()->shared_metrics();
}

void Instance::serves(std::shared_ptr<const Metrics> metrics) {
  const MutexLock lock(mutex_);
  of_server_ = std::move(metrics);
}

std::shared_ptr<EpochMember> Instance::member() {
  const RuntimeInUse initialized = runtime();  // throws without
  const MutexLock lock(mutex_);
  return member_;
}

std::shared_ptr<const JobServices> Instance::job_services() {
  const RuntimeInUse initialized = runtime();
  const MutexLock lock(mutex_);
  return job_services_;
}

// Caches only a valid runtime; a thread without one asks again.
void Instance::ask_anew() {
  if (stands_by_) leave_standby();
  thread_local OwnPointer own(users_);
  const MutexLock lock(mutex_);
  if (!runtime_) throw Error(StatusCode::not_initialized, "hvd is not initialised: call init() first");
  cached = {.object = runtime_.get(), .changes = changes_, .pointer = own.get()};
}

}  // namespace hvd
