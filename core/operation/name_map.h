// A hash map by name, with lookups that do not copy the name.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hvd {

inline std::size_t hash_of(std::string_view name) { return std::hash<std::string_view>{}(name); }

struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return hash_of(name); }
};

template <typename T>
using NameMap = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

}  // namespace hvd
