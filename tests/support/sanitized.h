// Whether the program runs under a sanitizer, which makes it many times slower: tests of every combination then cover
// some of each kind.
#pragma once

namespace hvd::testing {

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define HVD_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define HVD_SANITIZED 1
#define HVD_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HVD_SANITIZED 1
#endif

#ifdef HVD_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Of its own, which it has once there is another one.
#ifdef HVD_THREAD_SANITIZER
inline constexpr int kSanitizerThreads = 1;
#else
inline constexpr int kSanitizerThreads = 0;
#endif

}  // namespace hvd::testing
