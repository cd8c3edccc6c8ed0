// The ranks of a benchmark: forked processes that meet through a store and build the backends as the runtime does, and
// then call them directly. No engine, no negotiation, no other thread: what is timed is the data plane.
//
// On one host run_job() forks all ranks. On several it runs once on each: host 0 has the store too and writes into a
// file that all hosts see where the store is and the job's key.
#pragma once

#include <functional>
#include <string>

#include "core/execution/backend.h"

namespace hvd::bench {

struct JobOptions {
  int hosts = 1;
  int host = 0;                     // the number of the one this runs on
  int ranks_per_host = 2;           // ranks are numbered in host order
  std::string store;                // several hosts: the file
  std::string address = "0.0.0.0";  // several hosts: under which the others reach host 0
  bool pin = false;                 // the r-th rank of a host on its r-th CPU, round and round
  bool new_sessions = false;        // each rank in a session of its own, as remote launchers start them

  int size() const { return hosts * ranks_per_host; }
};

// One rank of the job, in its own process.
class Member {
 public:
  // All ranks construct together. `store` outlives the construction only.
  Member(const Config& config, Store& store, const JobKey& key, const std::string& local_host_address);

  int rank() const { return topology_.rank; }
  int size() const { return topology_.size; }
  int hosts() const { return static_cast<int>(topology_.hosts.size()); }
  const ProcessSet& everyone() const { return everyone_; }

  // Null if no memory is shared.
  TensorArena* arena() const { return data_plane_.arena.get(); }

  // The one that the runtime would choose.
  Backend& backend_for(const CollectiveCall& call) const;

  // The call under the next number.
  void run(Backend& backend, CollectiveCall& call) {
    call.sequence = ++sequence_;
    backend.run(call);
  }
  void barrier();
  // Rank 0's value, on every rank.
  std::int64_t agree(std::int64_t value);

 private:
  const Topology topology_;
  const Log log_;
  const ProcessSet everyone_;
  AbortFlag abort_;
  DataPlane data_plane_;
  std::uint64_t sequence_ = 0;
};

// Forks this host's ranks, in an environment in which they can also join a job by hvd_init(), runs `body` in each and
// waits for all. The first one that throws has its reason printed and ends the others; then the answer is false.
bool run_job(const JobOptions& options, const std::function<void(Member&)>& body);

}  // namespace hvd::bench
