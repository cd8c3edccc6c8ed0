// What the functions of the C interface share: status codes for exceptions, and checks of arguments and callers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "bindings/c/instance.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "hvd.h"

namespace hvd {

inline hvd_status report(const Status& status) {
  Instance::last_error() = status.message();
  return static_cast<hvd_status>(status.code());
}

// Runs a body that may throw; no exception leaves the library.
template <typename Body>
hvd_status guarded(Body&& body) noexcept {
  try {
    body();
    return HVD_OK;
  } catch (...) {
    try {
      return report(current_exception_status());
    } catch (...) {
      return HVD_INTERNAL;  // out of memory for the text
    }
  }
}

// Out of line, to keep the path of a correct call short.
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_null(const char* what) {
  throw InvalidArgument(std::string(what) + " is NULL");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_unknown(const char* what, std::int32_t number) {
  throw InvalidArgument(std::string(what) + " " + std::to_string(number) + " is unknown");
}

template <typename T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) throw_null(what);
  return *pointer;
}

// The structure of an older caller is shorter; missing fields keep their defaults.
template <typename T>
T copy_versioned(const T& caller, T with_defaults, const char* what) {
  if (caller.struct_size < sizeof(std::size_t) || caller.struct_size > sizeof(T)) {
    throw InvalidArgument(std::string(what) + ".struct_size is " + std::to_string(caller.struct_size) +
                          "; use the HVD_*_INIT initialiser of the hvd.h that belongs to this library");
  }
  std::memcpy(&with_defaults, &caller, caller.struct_size);
  return with_defaults;
}

// Stores as much of `full` as fits into the caller's structure.
template <typename T>
void store_versioned(T& caller, const T& full, const char* what) {
  copy_versioned(caller, full, what);
  const std::size_t size = caller.struct_size;
  std::memcpy(&caller, &full, size);
  caller.struct_size = size;
}

// The enumerator that a caller's number stands for: `from` is the enumeration's conversion.
template <typename T>
T known(std::optional<T> (*from)(std::int64_t), std::int32_t number, const char* what) {
  if (const auto value = from(number)) [[likely]] {
    return *value;
  }
  throw_unknown(what, number);
}

// Whether the calling thread is in a callback of hvd_work_on_done().
inline constinit thread_local bool is_called_back = false;

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_called_back(const char* function) {
  throw InvalidArgument(
      std::string(function) +
      "() was called by a callback of hvd_work_on_done(), which must not wait: let another thread do it");
}

// For functions that block: the callback's thread may be the one that has to complete what they wait for.
inline void refuse_in_callback(const char* function) {
  if (is_called_back) throw_called_back(function);
}

inline Duration timeout_of(std::int64_t timeout_us) {
  constexpr std::int64_t kCentury = std::int64_t{100} * 365 * 24 * 3600 * 1'000'000;
  const bool endless = timeout_us < 0 || timeout_us > kCentury;
  return endless ? Duration::max() : Duration(std::chrono::microseconds(timeout_us));
}

inline Deadline deadline_in(std::int64_t timeout_us) { return later(Clock::now(), timeout_of(timeout_us)); }

}  // namespace hvd
