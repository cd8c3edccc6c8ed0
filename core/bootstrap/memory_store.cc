#include "core/bootstrap/memory_store.h"

#include "core/base/error.h"

namespace hvd {

void MemoryStore::set(const std::string& key, const std::string& value) {
  {
    const MutexLock lock(mutex_);
    table_.set(key, value);
  }
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, Deadline deadline) {
  const MutexLock lock(mutex_);
  const auto is_set = [&]() REQUIRES(mutex_) { return table_.find(key) != nullptr; };
  if (!changed_.wait_until(mutex_, deadline, is_set)) throw Timeout("waiting for the key '" + key + "' in the store");
  return *table_.find(key);
}

std::int64_t MemoryStore::add(const std::string& key, std::int64_t amount) {
  const MutexLock lock(mutex_);
  return table_.add(key, amount);
}

}  // namespace hvd
