// Instance: the process-wide object behind the C interface. Holds the Runtime, and the last error of each thread.
// docs/threads.md lists the other process-wide objects; everything else has an owner.
//
// Functions may be called from any thread. Never destroyed: background threads and late callers may outlive main().
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bindings/c/caller_memory.h"
#include "core/base/hazard_pointer.h"
#include "core/base/mutex.h"
#include "core/bootstrap/elastic.h"
#include "core/bootstrap/rendezvous.h"
#include "core/config.h"
#include "core/runtime/runtime.h"

namespace hvd {

// What parameter servers need to reach the job: its store (the same in all epochs under hvdrun) and its key.
struct JobServices {
  Store store;
  JobKey key;
  Config config;
  std::string local_host;         // the numeric address at which other processes of the job reach this one
  std::string host_key;           // RankIdentity's
  bool has_servers = true;        // false: the servers are announced in the store of an earlier epoch
  bool ends_with_rank_0 = false;  // rank 0 runs the store
  // Whether this process is connected with the job's servers: at most one connection at a time.
  std::shared_ptr<std::atomic_flag> is_connected = std::make_shared<std::atomic_flag>();
};

struct JoinedJob {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<EpochMember> member;  // null: the job is not elastic
  std::shared_ptr<const JobServices> services;
  bool is_launched = true;  // by a launcher, which sees this process end
};

// The runtime of this process, which is not destroyed before this object.
using RuntimeInUse = InUse<Runtime>;

class Instance {
 public:
  static Instance& get();

  // Joins the job that the rendezvous, or else the environment, describes; does nothing if initialised. Throws Error.
  void init(const std::optional<Rendezvous>& rendezvous = std::nullopt);
  // Like init(), but stands by if this process is a newcomer of an elastic job. `joined` is called when runtime() has
  // joined.
  void init_standby(std::function<void()> joined);
  // Returns when the threads, connections and memory of the runtime are released. The caller must not hold runtime().
  void shut_down();
  // Aborts the job because this rank failed (Runtime::fail). Does nothing if not initialised.
  void fail(const std::string& cause);
  bool initialized() const;
  // The place that this process would have if the next epoch began now. Empty unless it stands by.
  std::optional<ExpectedRank> expected_rank() const;

  // Joins the job if this process stands by. Throws an Error with StatusCode::not_initialized. Used for the length of
  // one call: shut_down() waits up to 5 s until no thread uses the runtime. Each thread caches it, so that the common
  // case takes no lock.
  RuntimeInUse runtime();
  // For functions that concern only this process: throws also if it stands by.
  RuntimeInUse joined_runtime();

  // The metrics of this rank, or of the parameter server that this process runs. Throws as joined_runtime().
  std::shared_ptr<const Metrics> metrics();
  // Sets the metrics of the parameter server that this process runs; null when it has ended.
  void serves(std::shared_ptr<const Metrics> metrics);

  // This process's part in an elastic job; null if the job is not elastic. Throws as runtime().
  std::shared_ptr<EpochMember> member();

  // Of this process's job. Throws as runtime().
  std::shared_ptr<const JobServices> job_services();

  // A connection with parameter servers began or ended. It may outlive shut_down(), and no forked child may use it.
  void count_connection(int change);

  // Allocates in the current arena, or ordinary memory if there is none. Throws Error.
  void* allocate(std::size_t bytes);
  // Frees what allocate() returned, or what was handed to keep().
  void free(void* memory);
  // Owns device memory until free().
  void keep(std::shared_ptr<void> on_device);

  // True in a child that was forked from a process which uses hvd: no function of hvd works there. Takes no lock,
  // because another thread may have held it at the fork.
  bool forked() const;

  // Text of the calling thread's last failure.
  static std::string& last_error();

 private:
  Instance();
  [[noreturn]] static void on_terminate();
  void ask_anew();
  std::shared_ptr<Runtime> current() const;  // null: this process is in no job
  void leave_standby();
  void join(const Environment& environment, const std::optional<Rendezvous>& rendezvous) REQUIRES(lifecycle_);

  Mutex lifecycle_;                       // held throughout init() and shut_down()
  int epoch_ GUARDED_BY(lifecycle_) = 0;  // number of initialisations of this process
  std::atomic<bool> in_use_{false};       // from the start of init() to the end of shut_down()
  std::atomic<int> connections_{0};
  std::atomic<bool> forked_{false};
  std::terminate_handler earlier_terminate_ = nullptr;  // replaced by on_terminate(); set once, by init()
  std::atomic<std::uint64_t> changes_{1};               // incremented when runtime_ changes
  HazardPointers users_;                                // of runtimes, by thread
  mutable Mutex mutex_ ACQUIRED_AFTER(lifecycle_);      // held only briefly
  std::shared_ptr<Runtime> runtime_ GUARDED_BY(mutex_);
  std::shared_ptr<EpochMember> member_ GUARDED_BY(mutex_);  // of the same job
  std::shared_ptr<const JobServices> job_services_ GUARDED_BY(mutex_);
  bool is_launched_ GUARDED_BY(mutex_) = true;
  std::shared_ptr<const Metrics> of_server_ GUARDED_BY(mutex_);
  std::optional<ExpectedRank> expected_rank_ GUARDED_BY(mutex_);  // while this process stands by
  std::atomic<bool> stands_by_{false};                            // expected_rank_ is there: asked without the lock
  std::function<void()> joined_ GUARDED_BY(lifecycle_);
  Environment standby_environment_ GUARDED_BY(lifecycle_);  // as of init_standby()
  CallerMemory caller_memory_;
};

// Returns the place that this process would have as a newcomer of an elastic job that has begun without it; empty if it
// is to join at once. Throws Error.
std::optional<ExpectedRank> find_expected_rank(const Environment& environment);

// Finds the job of a process that is one of its parameter servers. Throws InvalidArgument if it is none, Timeout,
// PeerLost.
JobServices job_services_of_server(const Environment& environment);

// Joins the job. `rendezvous` or, without it, the environment describes this process; only this function knows the
// differences between launchers. All processes of the job must call; returns when all have. `epoch` counts the calls of
// this process. Throws Error; rank 0 logs warnings about the configuration.
JoinedJob join_job(const Environment& environment, const std::optional<Rendezvous>& rendezvous, int epoch);

}  // namespace hvd
