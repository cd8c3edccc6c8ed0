#include "bindings/c/instance.h"

#include <pthread.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/rendezvous/host_identity.h"
#include "core/rendezvous/memory_store.h"
#include "core/rendezvous/prefix_store.h"
#include "core/rendezvous/tcp_store.h"
#include "ops/registry.h"

namespace hvd {

namespace {

// A runtime, and the store through which its ranks meet.
struct Job {
  std::unique_ptr<Store> store;
  std::unique_ptr<Store> epoch_store;
  std::unique_ptr<Runtime> runtime;
};

// What a thread found when it last asked for the runtime: apart from what keeps that alive, which has a destructor, and
// is therefore dearer to reach.
struct Remembered {
  std::uint64_t changes = 0;
  const std::shared_ptr<Runtime>* runtime = nullptr;
};
constinit thread_local Remembered remembered;

// A thread that still calls hvd while it ends is to find that out.
struct Kept {
  std::shared_ptr<Runtime> runtime;
  ~Kept() { remembered = {}; }
};

std::shared_ptr<Runtime>& kept() {
  thread_local Kept kept;
  return kept.runtime;
}

std::shared_ptr<Runtime> runtime_of(std::shared_ptr<Job> job) {
  Runtime* const runtime = job->runtime.get();
  return {std::move(job), runtime};
}

// A job of several processes, as its launcher describes it.
std::shared_ptr<Runtime> join_job(const Config& config, int epoch) {
  if (config.store.empty() || config.job_key.empty()) {
    throw InvalidArgument("HVD_SIZE is " + std::to_string(config.size) + " but " +
                          (config.store.empty() ? "HVD_STORE" : "HVD_JOB_KEY") +
                          " is not set: start the processes with hvdrun");
  }
  const JobKey key = JobKey::from_hex(config.job_key);
  auto store =
      std::make_unique<TcpStore>(Address::parse(config.store), key, config.rank, deadline_after(config.start_timeout));
  const std::string own_host = store->local_host();
  const auto job = std::make_shared<Job>();
  job->store = std::move(store);
  job->epoch_store = std::make_unique<PrefixStore>(*job->store, "epoch/" + std::to_string(epoch) + "/");
  job->runtime = std::make_unique<Runtime>(
      config, Runtime::Surroundings{.store = *job->epoch_store,
                                    .job_key = key,
                                    .identity = identify_this_process(config.host_id, config.hostname),
                                    .own_host_address = own_host,
                                    .make_data_plane = make_data_plane});
  return runtime_of(job);
}

std::shared_ptr<Runtime> start_alone(const Config& config) {
  const auto job = std::make_shared<Job>();
  job->store = std::make_unique<MemoryStore>();
  job->runtime = std::make_unique<Runtime>(
      config, Runtime::Surroundings{.store = *job->store,
                                    .job_key = JobKey::random(),
                                    .identity = identify_this_process(config.host_id, config.hostname),
                                    .own_host_address = "127.0.0.1",
                                    .make_data_plane = make_data_plane});
  return runtime_of(job);
}

}  // namespace

Instance::Instance() {
  // Data loaders fork. Reads without the lock: a child has one thread, and the lock may be held by one that it lacks.
  pthread_atfork(nullptr, nullptr, [] {
    Instance& instance = get();
    if (!instance.in_use_ || instance.forked_.exchange(true)) return;
    if (instance.runtime_) instance.runtime_->abandon_in_child();
  });
}

void Instance::refuse_if_forked() const {
  if (forked()) {
    throw Error(StatusCode::not_initialized,
                "hvd cannot be used in a forked child of a process that uses it: start it with exec instead");
  }
}

Instance& Instance::get() {
  static auto* const instance = new Instance();
  return *instance;
}

std::string& Instance::last_error() {
  thread_local std::string text;
  return text;
}

void Instance::init() {
  refuse_if_forked();
  std::lock_guard lifecycle(lifecycle_);
  if (initialized()) return;
  in_use_ = true;
  try {
    auto runtime = start();
    std::lock_guard lock(mutex_);
    runtime_ = std::move(runtime);
    ++changes_;
  } catch (...) {
    in_use_ = false;
    throw;
  }
}

std::shared_ptr<Runtime> Instance::start() {
  const auto [config, warnings] = read_config(process_environment());
  ++epoch_;
  auto runtime = config.size == 1 ? start_alone(config) : join_job(config, epoch_);
  if (config.rank == 0) {
    for (const std::string& warning : warnings) runtime->log().warning(warning);
  }
  return runtime;
}

void Instance::shut_down() {
  if (forked()) return;
  std::lock_guard lifecycle(lifecycle_);
  std::shared_ptr<Runtime> runtime;
  {
    std::lock_guard lock(mutex_);
    runtime = std::move(runtime_);
    ++changes_;
  }
  remembered = {};
  kept().reset();
  if (runtime) runtime->shut_down();
  drop_unused_arenas();
  in_use_ = false;
}

void* Instance::allocate(std::size_t bytes) {
  const std::shared_ptr<TensorArena> arena = runtime()->arena();
  if (!arena) return allocate_tensor_memory(bytes);
  void* memory = arena->allocate(bytes);
  std::lock_guard lock(mutex_);
  if (std::find(arenas_.begin(), arenas_.end(), arena) == arenas_.end()) arenas_.push_back(arena);
  return memory;
}

void Instance::free(void* memory) {
  if (const std::shared_ptr<TensorArena> arena = arena_of(memory)) {
    arena->free(memory);
    drop_unused_arenas();
  } else if (!free_on_device(memory)) {
    FreeMemory()(memory);
  }
}

void Instance::keep(std::shared_ptr<void> on_device) {
  std::lock_guard lock(mutex_);
  void* const address = on_device.get();
  on_devices_[address] = std::move(on_device);
}

// A forked child has the addresses, but no device: nothing is given back there.
bool Instance::free_on_device(void* memory) {
  if (forked()) return on_devices_.contains(memory);
  std::unique_lock lock(mutex_);
  auto found = on_devices_.extract(memory);
  lock.unlock();  // the driver may wait for the device
  return !found.empty();
}

std::shared_ptr<TensorArena> Instance::arena_of(const void* memory) const {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!forked()) lock.lock();
  const auto found =
      std::find_if(arenas_.begin(), arenas_.end(), [memory](const auto& arena) { return arena->contains(memory); });
  return found == arenas_.end() ? nullptr : *found;
}

void Instance::drop_unused_arenas() {
  if (forked()) return;
  std::lock_guard lock(mutex_);
  std::erase_if(arenas_, [this](const auto& arena) {
    return (!runtime_ || runtime_->arena() != arena) && arena->usage().used == 0;
  });
}

bool Instance::initialized() const {
  if (forked()) return false;
  std::lock_guard lock(mutex_);
  return runtime_ != nullptr;
}

const std::shared_ptr<Runtime>& Instance::runtime() const {
  refuse_if_forked();
  const Remembered own = remembered;
  return own.changes == changes_.load(std::memory_order_acquire) ? *own.runtime : ask_anew();
}

// Remembers only what can be used: who finds nothing asks again.
const std::shared_ptr<Runtime>& Instance::ask_anew() const {
  std::shared_ptr<Runtime>& own = kept();
  std::unique_lock lock(mutex_);
  const std::uint64_t changes = changes_;
  const std::shared_ptr<Runtime> earlier = std::exchange(own, runtime_);  // destroyed without the lock
  lock.unlock();
  if (!own) throw Error(StatusCode::not_initialized, "hvd is not initialised: call init() first");
  remembered = {changes, &own};
  return own;
}

}  // namespace hvd
