#include "core/bootstrap/store_table.h"

#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

// The approximate cost of an entry in addition to its text.
constexpr std::size_t kEntryBytes = 128;

}  // namespace

void check_store_key(const std::string& key) {
  if (key.size() <= kMaxStoreKeyBytes) return;
  throw InvalidArgument("a store key of " + std::to_string(key.size()) + " bytes; at most " +
                        std::to_string(kMaxStoreKeyBytes) + " are allowed");
}

void check_store_value(const std::string& key, const std::string& value) {
  if (value.size() <= kMaxStoreValueBytes) return;
  throw InvalidArgument("the store's value for '" + key + "' has " + std::to_string(value.size()) + " bytes; at most " +
                        std::to_string(kMaxStoreValueBytes) + " are allowed");
}

void StoreTable::reserve(const std::string& key, std::size_t freed, std::size_t needed) {
  if (used_bytes_ - freed + needed > capacity_bytes_) {
    throw InvalidArgument("the store is full (" + std::to_string(capacity_bytes_) + " bytes): no room for '" + key +
                          "'");
  }
  used_bytes_ += needed - freed;
}

void StoreTable::set(const std::string& key, std::string value) {
  check_store_key(key);
  check_store_value(key, value);
  const auto found = values_.find(key);
  if (found != values_.end()) {
    reserve(key, found->second.size(), value.size());
    found->second = std::move(value);
  } else {
    reserve(key, 0, kEntryBytes + key.size() + value.size());
    values_.emplace(key, std::move(value));
  }
}

std::int64_t StoreTable::add(const std::string& key, std::int64_t amount) {
  check_store_key(key);
  auto found = counters_.find(key);
  if (found == counters_.end()) {
    reserve(key, 0, kEntryBytes + key.size());
    found = counters_.emplace(key, 0).first;
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(found->second, amount, &sum)) {
    throw InvalidArgument("the store's counter '" + key + "' would overflow");
  }
  return found->second = sum;
}

const std::string* StoreTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

}  // namespace hvd
