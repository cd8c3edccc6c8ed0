// Names of operations: maps by name, and the names that hvd generates for operations without one, which the
// OperationTable assigns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/operation/operation_spec.h"

namespace hvd {

// Longest name of an operation. Longer ones must be refused at submission: no rank would decode them.
inline constexpr std::size_t kMaxNameBytes = 4096;

// The name of a join: a set has one at a time, and ranks that join early have counted fewer operations. No other name
// can be taken while it is in flight.
inline constexpr const char* kJoinName = "<join>";

// ---- Maps, with lookups that do not copy the name

inline std::size_t hash_of(std::string_view name) { return std::hash<std::string_view>{}(name); }

struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return hash_of(name); }
};

template <typename T>
using NameMap = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

// The key of an operation: process set and name.
struct OperationKeyView {
  std::int32_t process_set;
  std::string_view name;
  bool operator==(const OperationKeyView&) const = default;
};

struct OperationKey {
  std::int32_t process_set;
  std::string name;

  explicit OperationKey(const OperationSpec& spec) : process_set(spec.process_set), name(spec.name) {}
  operator OperationKeyView() const { return {process_set, name}; }
};

inline OperationKeyView key_of(const OperationSpec& spec) { return {spec.process_set, spec.name}; }

struct OperationKeyHash {
  using is_transparent = void;
  std::size_t operator()(OperationKeyView key) const {
    return std::hash<std::string_view>{}(key.name) ^ (static_cast<std::size_t>(key.process_set) * 0x9e3779b97f4a7c15u);
  }
};

struct OperationKeyEqual {
  using is_transparent = void;
  bool operator()(OperationKeyView a, OperationKeyView b) const { return a == b; }
};

template <typename T>
using OperationMap = std::unordered_map<OperationKey, T, OperationKeyHash, OperationKeyEqual>;

// ---- Generated names

inline constexpr std::string_view kMadeUp = "unnamed.";

// After joins that were given up, numbering restarts with a suffix that counts them: ranks that have not come to that
// join yet still use the numbers before it.
inline std::string suffix_after(std::uint64_t failed_joins) {
  return failed_joins == 0 ? std::string() : ".after.join." + std::to_string(failed_joins);
}

// A name that does not repeat, or not before all ranks have joined.
inline std::string counted_name(std::uint64_t number, std::uint64_t failed_joins = 0) {
  return std::string(kMadeUp) + std::to_string(number) + suffix_after(failed_joins);
}

// The name of a synchronous operation after so many counted ones: all operations of a loop share it.
inline std::string waited_name(std::uint64_t number, std::uint64_t failed_joins = 0) {
  return std::string(kMadeUp) + "after." + std::to_string(number) + suffix_after(failed_joins);
}

inline bool is_made_up(std::string_view name) { return name.starts_with(kMadeUp); }

inline bool is_counted(std::string_view name) {
  return name.size() > kMadeUp.size() && name.starts_with(kMadeUp) && name[kMadeUp.size()] >= '0' &&
         name[kMadeUp.size()] <= '9';
}

}  // namespace hvd
