// Converts ranges to tensors of the C interface, and rejects unsuitable ones at compile time. Included by hvd.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "hvd.h"
#include "hvd/element.hpp"

namespace hvd {
inline namespace v1 {

namespace detail {

template <typename R>
using Value = std::ranges::range_value_t<R>;

// The element type of results in a std::vector: hvd::boolean instead of bool, one byte each.
template <typename R>
using Stored = std::conditional_t<std::same_as<Value<R>, bool>, boolean, Value<R>>;

// A one-dimensional hvd_tensor over a range. Holds the shape, so it must live until the call returns.
class Tensor {
 public:
  template <std::ranges::range R>
  explicit Tensor(R& values) {
    static_assert(
        std::ranges::contiguous_range<R> && std::ranges::sized_range<R>,
        "hvd: elements must lie side by side in memory (for std::vector<bool> use std::vector<hvd::boolean>)");
    static_assert(Element<Value<R>>,
                  "hvd: not an element type; these are: std::uint8_t, signed integers of 8 to 64 bits, hvd::float16, "
                  "hvd::bfloat16, float, double, bool, hvd::boolean");
    // The C structure is shared by inputs and outputs; inputs are only read.
    tensor_.data = const_cast<std::remove_cv_t<Value<R>>*>(std::ranges::data(values));
    tensor_.dtype = dtype_of<std::remove_cv_t<Value<R>>>();
    length_ = static_cast<std::int64_t>(std::ranges::size(values));
  }

  operator hvd_tensor() const {
    hvd_tensor tensor = tensor_;
    tensor.shape = &length_;
    return tensor;
  }

 private:
  hvd_tensor tensor_{nullptr, nullptr, 1, 0, HVD_CPU, 0};
  std::int64_t length_ = 0;
};

template <typename R>
constexpr void check_writable() {
  using Reference = std::ranges::range_reference_t<R>;
  static_assert(!std::is_const_v<std::remove_reference_t<Reference>>,
                "hvd: the result is written here, but the elements are const");
}

template <typename R>
constexpr void check_outlives_call() {
  static_assert(std::ranges::borrowed_range<R>, "hvd: a temporary would be gone before the operation is done");
}

// Of a group: std::vector{weights, biases} has copies of both, which it would take with it.
template <typename Group>
constexpr void check_members_outlive_call() {
  static_assert(std::is_lvalue_reference_v<Group> || std::ranges::view<std::remove_cvref_t<Group>> ||
                    std::ranges::borrowed_range<Value<Group>>,
                "hvd: the members of a temporary group would be gone before the operation is done: give spans of them");
}

}  // namespace detail

}  // namespace v1
}  // namespace hvd
