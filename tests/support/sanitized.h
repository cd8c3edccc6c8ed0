// Whether the program runs under a sanitizer, which makes it many times slower: tests of every combination then cover
// some of each kind.
#pragma once

namespace hvd::testing {

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define HVD_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define HVD_THREAD_SANITIZER 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HVD_SANITIZED 1
#endif
#ifdef __SANITIZE_THREAD__
#define HVD_THREAD_SANITIZER 1
#endif
#ifdef HVD_THREAD_SANITIZER
#define HVD_SANITIZED 1
#endif

#ifdef HVD_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Threads of the sanitizer's own: ThreadSanitizer has one as soon as the program has a second one.
#ifdef HVD_THREAD_SANITIZER
inline constexpr int kSanitizerThreads = 1;
#else
inline constexpr int kSanitizerThreads = 0;
#endif

}  // namespace hvd::testing
