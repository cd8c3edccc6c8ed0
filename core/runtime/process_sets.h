// The process sets of a job, ordered subsets of its ranks, with the communicators of those that contain this rank; and
// how all ranks agree to add and to remove sets. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/base/mutex.h"
#include "core/runtime/communicator.h"
#include "core/tensor/collective.h"

namespace hvd {

class ProcessSets {
 public:
  struct Entry {
    std::shared_ptr<const ProcessSet> set;
    std::shared_ptr<Communicator> communicator;  // null: this rank is not in the set
  };

  // Begins with the set of all ranks, whose communicator `global` is. Everything outlives this object; later sets use
  // the store for their rendezvous.
  ProcessSets(const Topology& topology, Store& store, const Communicator::Common& common,
              std::shared_ptr<Communicator> global);

  // Throws InvalidArgument if no such set exists.
  Entry find(std::int32_t id) const;
  // The same; InvalidArgument also if this rank is not in the set.
  Entry find_local(std::int32_t id) const;
  // By number.
  std::vector<ProcessSet> all() const;

  // All ranks of the job must call these two in the same order, members or not; they return when all have. One thread
  // at a time.
  //
  // Adds a set of these ranks, in any order; returns its number, the same on every rank. Throws InvalidArgument (a rank
  // that does not exist, or such a set exists already), Mismatch if the ranks of the job ask for different sets.
  std::int32_t add(std::vector<int> ranks);
  // The number may be reused. Throws InvalidArgument if no such set exists, if it is that of all ranks, or if
  // operations of this rank are in flight in it; Mismatch.
  void remove(std::int32_t id);

  // Shuts down the communicators of all sets but the one of all ranks.
  void shut_down();

  // In a forked child. Does not take the lock, which another thread may have held at the fork.
  void abandon_in_child() noexcept NO_THREAD_SAFETY_ANALYSIS {
    for (const auto& [id, entry] : entries_) {
      if (entry.communicator) entry.communicator->abandon_in_child();
    }
  }

 private:
  // The answers of all ranks to the same question, by rank.
  std::vector<std::vector<std::int64_t>> ask_all(const std::vector<std::int64_t>& own);
  void agree(const std::vector<std::int64_t>& change);
  std::shared_ptr<Communicator> make_communicator(const ProcessSet& set) REQUIRES(changes_mutex_);
  void refuse_duplicate(const std::vector<int>& ranks) const;
  std::int32_t lowest_free_id() const;

  const Topology& topology_;
  Store& store_;
  const Communicator::Common common_;
  const std::shared_ptr<Communicator> global_;
  Mutex changes_mutex_;                                       // held while a set is added or removed
  std::uint64_t sets_so_far_ GUARDED_BY(changes_mutex_) = 0;  // number of sets ever added
  mutable Mutex mutex_ ACQUIRED_AFTER(changes_mutex_);
  std::map<std::int32_t, Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace hvd
