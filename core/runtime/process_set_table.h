// The process sets of a job, with the communicators of those that contain this rank. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/runtime/communicator.h"
#include "core/tensor/process_set.h"

namespace hvd {

class ProcessSetTable {
 public:
  struct Entry {
    std::shared_ptr<const ProcessSet> set;
    std::shared_ptr<Communicator> communicator;  // null: this rank is not in the set
  };

  // Throws InvalidArgument if no such set exists.
  Entry find(std::int32_t id) const;
  std::vector<ProcessSet> all() const;

  // Throws InvalidArgument if a set of these ranks exists.
  void refuse_duplicate(const std::vector<int>& ranks) const;
  std::int32_t lowest_free_id() const;
  void add(const ProcessSet& set, std::shared_ptr<Communicator> communicator);
  void remove(std::int32_t id);

  // In a forked child. Does not take the lock, which another thread may have held at the fork.
  void abandon_in_child() noexcept {
    for (const auto& [id, entry] : entries_) {
      if (entry.communicator) entry.communicator->abandon_in_child();
    }
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::int32_t, Entry> entries_;  // guarded by mutex_
};

}  // namespace hvd
