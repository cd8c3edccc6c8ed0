// The key of an operation: process set and name. Hashed without copying the name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/operation/request.h"

namespace hvd {

struct OperationKeyView {
  std::int32_t process_set;
  std::string_view name;
  bool operator==(const OperationKeyView&) const = default;
};

struct OperationKey {
  std::int32_t process_set;
  std::string name;

  explicit OperationKey(const Request& request) : process_set(request.process_set), name(request.name) {}
  operator OperationKeyView() const { return {process_set, name}; }
};

inline OperationKeyView key_of(const Request& request) { return {request.process_set, request.name}; }

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

}  // namespace hvd
