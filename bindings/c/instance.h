// The one process-wide object: the Runtime behind the C interface, and the last error of each thread.
//
// Never destroyed: background threads and late callers may outlive main(). Everything else in hvd is an ordinary
// object that somebody owns.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/rendezvous/rendezvous.h"
#include "core/runtime/runtime.h"

namespace hvd {

class Instance {
 public:
  static Instance& get();

  // Joins the job that the rendezvous, or else the environment, describes; does nothing if initialised. Throws Error.
  void init(const std::optional<Rendezvous>& rendezvous = std::nullopt);
  // Returns when threads, connections and memory of the runtime are gone. Not for a thread that holds runtime().
  void shut_down();
  // This rank ends its job as one that has failed (Runtime::fail). Does nothing if not initialised.
  void fail(const std::string& cause);
  bool initialized() const;

  // Throws an Error with StatusCode::not_initialized. To be held for one call: shut_down() waits for those who hold it.
  // Each thread remembers where it is, so that asking takes no lock.
  std::shared_ptr<Runtime> runtime() const;

  // Memory of the current arena, or ordinary memory where there is none. Throws Error.
  void* allocate(std::size_t bytes);
  // Of any arena there ever was, of a device, or ordinary memory.
  void free(void* memory);
  // A device's memory, until free().
  void keep(std::shared_ptr<void> on_device);

  // True in a child that was forked from a process which uses hvd: nothing of hvd works there. Takes no lock, which
  // another thread may have held at the fork.
  bool forked() const { return forked_.load(std::memory_order_relaxed); }

  // Text of the calling thread's last failure.
  static std::string& last_error();

 private:
  Instance();
  void refuse_if_forked() const;
  void watch_for_terminate();
  [[noreturn]] static void on_terminate();
  std::shared_ptr<TensorArena> arena_of(const void* memory) const;
  void drop_unused_arenas();
  bool free_on_device(void* memory);
  std::shared_ptr<Runtime> ask_anew() const;

  std::mutex lifecycle_;             // held throughout init() and shut_down()
  int epoch_ = 0;                    // guarded by lifecycle_; times that this process has initialised
  std::atomic<bool> in_use_{false};  // from the begin of init() to the end of shut_down()
  std::atomic<bool> forked_{false};
  std::terminate_handler earlier_terminate_ = nullptr;  // what on_terminate() has replaced; set once, by init()
  std::atomic<std::uint64_t> changes_{1};               // of runtime_
  mutable std::mutex mutex_;                            // never held for long
  std::shared_ptr<Runtime> runtime_;                    // guarded by mutex_
  // Guarded by mutex_: the current one once it was allocated from, and earlier ones of which something is in use.
  std::vector<std::shared_ptr<TensorArena>> arenas_;
  std::map<void*, std::shared_ptr<void>> on_devices_;  // handed out, by address; guarded by mutex_
};

}  // namespace hvd
