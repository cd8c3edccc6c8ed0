#include "core/bootstrap/memory_store.h"

#include "core/base/error.h"

namespace hvd {

void MemoryStore::set(const std::string& key, const std::string& value) {
  {
    std::lock_guard lock(mutex_);
    table_.set(key, value);
  }
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const std::string* value = nullptr;
  changed_.wait_until(lock, deadline, [&] { return (value = table_.find(key)) != nullptr; });
  if (value == nullptr) throw Timeout("waiting for the key '" + key + "' in the store");
  return *value;
}

std::int64_t MemoryStore::add(const std::string& key, std::int64_t amount) {
  std::lock_guard lock(mutex_);
  return table_.add(key, amount);
}

}  // namespace hvd
