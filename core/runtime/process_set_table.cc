#include "core/runtime/process_set_table.h"

#include <string>
#include <utility>

#include "core/base/error.h"

namespace hvd {

ProcessSetTable::Entry ProcessSetTable::find(std::int32_t id) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) throw InvalidArgument("there is no process set " + std::to_string(id));
  return found->second;
}

std::vector<ProcessSet> ProcessSetTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<ProcessSet> sets;
  for (const auto& [id, entry] : entries_) sets.push_back(*entry.set);
  return sets;
}

void ProcessSetTable::refuse_duplicate(const std::vector<int>& ranks) const {
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (entry.set->ranks == ranks) {
      throw InvalidArgument("process set " + std::to_string(id) + " has these ranks already");
    }
  }
}

std::int32_t ProcessSetTable::lowest_free_id() const {
  std::lock_guard lock(mutex_);
  std::int32_t id = kGlobalProcessSet;
  while (entries_.contains(id)) ++id;
  return id;
}

void ProcessSetTable::add(const ProcessSet& set, std::shared_ptr<Communicator> communicator) {
  std::lock_guard lock(mutex_);
  entries_[set.id] = {std::make_shared<const ProcessSet>(set), std::move(communicator)};
}

void ProcessSetTable::remove(std::int32_t id) {
  Entry removed;  // its communicator is destroyed after the lock is released
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  removed = std::move(found->second);
  entries_.erase(found);
}

}  // namespace hvd
