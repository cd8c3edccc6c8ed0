// The map behind every store: values that are set, counters that are added to, and bounds on both. Pure.
//
// Values and counters have separate name spaces. A value may be set again; earlier readers keep what they got.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace hvd {

inline constexpr std::size_t kMaxStoreKeyBytes = 4096;
inline constexpr std::size_t kMaxStoreValueBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxStoreBytes = std::size_t{1} << 30;

class StoreTable {
 public:
  explicit StoreTable(std::size_t capacity_bytes = kMaxStoreBytes) : capacity_bytes_(capacity_bytes) {}

  // Throw InvalidArgument: key or value too long, store full, counter overflow. The table is unchanged then.
  void set(const std::string& key, std::string value);
  std::int64_t add(const std::string& key, std::int64_t amount);

  // Null while the key was not set. Valid until the next call.
  const std::string* find(const std::string& key) const;

 private:
  void reserve(const std::string& key, std::size_t freed, std::size_t needed);

  std::size_t capacity_bytes_;
  std::size_t used_bytes_ = 0;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::int64_t> counters_;
};

// Throws InvalidArgument above kMaxStoreKeyBytes.
void check_store_key(const std::string& key);
void check_store_value(const std::string& key, const std::string& value);

}  // namespace hvd
