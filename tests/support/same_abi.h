// Compares, while a test is compiled, hvd's own declarations of external interfaces with the vendors' headers.
//
// Types have other names in these. A Glossary lists the pairs; a type is translated by replacing each that is in the
// glossary, in what a pointer points to, and in what a function takes and returns:
//
//   using Words = Glossary<Word<CUstream, cuda::Stream>, Word<CUresult, cuda::Result>>;
//   static_assert(same_abi<Words, decltype(cuStreamQuery), decltype(*cuda::StreamFunctions::query)>);
#pragma once

#include <type_traits>

namespace hvd::testing {

// Said here as From, there as To.
template <typename From, typename To>
struct Word {
  static_assert(sizeof(From) == sizeof(To) && alignof(From) == alignof(To));
};

template <typename... Words>
struct Glossary {};

// The pair of a type; void if it is not listed.
template <typename Words, typename T>
struct Lookup {
  using type = void;
};
template <typename T, typename To, typename... Rest>
struct Lookup<Glossary<Word<T, To>, Rest...>, T> {
  using type = To;
};
template <typename T, typename From, typename To, typename... Rest>
struct Lookup<Glossary<Word<From, To>, Rest...>, T> : Lookup<Glossary<Rest...>, T> {};

template <typename Words, typename T>
struct Translation;

// What is not listed is translated part by part.
template <typename Words, typename T>
struct PartByPart {
  using type = T;
};
template <typename Words, typename T>
struct PartByPart<Words, const T> {
  using type = const typename Translation<Words, T>::type;
};
template <typename Words, typename T>
struct PartByPart<Words, T*> {
  using type = typename Translation<Words, T>::type*;
};
template <typename Words, typename Result, typename... Parameters>
struct PartByPart<Words, Result(Parameters...)> {
  using type = typename Translation<Words, Result>::type(typename Translation<Words, Parameters>::type...);
};

template <typename Words, typename T>
struct Translation {
  using Listed = typename Lookup<Words, T>::type;
  using type =
      typename std::conditional_t<std::is_void_v<Listed>, PartByPart<Words, T>, std::type_identity<Listed>>::type;
};

template <typename Words, typename From, typename To>
inline constexpr bool same_abi = std::is_same_v<typename Translation<Words, From>::type, To>;

}  // namespace hvd::testing
