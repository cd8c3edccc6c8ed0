#include "tools/bench/tensor_set.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace hvd::bench {

namespace {

constexpr std::uint64_t kMaxTensors = 100'000;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;

// A positive integer, and the text that follows it.
struct Count {
  std::uint64_t value;
  std::string rest;
};

std::optional<Count> parse_count(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value == 0) return std::nullopt;
  return Count{value, std::string(rest, end)};
}

// Returns 0 if the unit is unknown.
std::uint64_t parse_unit(std::string unit) {
  for (char& letter : unit) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  if (unit.empty() || unit == "b") return 1;
  const auto power = std::string_view("kmgt").find(unit.front());
  const std::string rest = unit.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return 0;
  return std::uint64_t{1024} << 10 * power;
}

}  // namespace

std::uint64_t parse_size(const std::string& text) {
  const auto count = parse_count(text);
  const std::uint64_t unit = count ? parse_unit(count->rest) : 0;
  if (unit == 0 || count->value > kMaxBytes / unit) {
    throw std::invalid_argument("\"" + text + "\" is no number of bytes, such as 8, 64K or 1M");
  }
  return count->value * unit;
}

std::vector<std::uint64_t> size_range(std::uint64_t first, std::uint64_t last, std::uint64_t factor) {
  if (factor < 2) throw std::invalid_argument("-f " + std::to_string(factor) + ": sizes grow by a factor of 2 or more");
  if (first > last) {
    throw std::invalid_argument("-b " + std::to_string(first) + " is more than -e " + std::to_string(last));
  }
  std::vector<std::uint64_t> sizes{first};
  while (sizes.back() <= last / factor) sizes.push_back(sizes.back() * factor);
  return sizes;
}

TensorSet parse_tensor_set(const std::string& text, std::size_t element_size) {
  if (text == "resnet50") return resnet50();
  const auto count = parse_count(text);
  if (!count || count->value > kMaxTensors || !count->rest.starts_with('x')) {
    throw std::invalid_argument("--tensors " + text + ": neither resnet50 nor, for instance, 100x64MB");
  }
  const std::uint64_t bytes = parse_size(count->rest.substr(1));
  return TensorSet(count->value, static_cast<std::int64_t>(bytes / count->value / element_size));
}

// K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, 2016, table 1.
TensorSet resnet50() {
  TensorSet set;
  const auto add_convolution = [&set](std::int64_t inputs, std::int64_t outputs, std::int64_t kernel) {
    set.push_back(inputs * outputs * kernel * kernel);
    set.insert(set.end(), 2, outputs);  // scale and shift of the batch normalisation that follows
  };
  add_convolution(3, 64, 7);
  std::int64_t channels = 64;
  std::int64_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      add_convolution(channels, width, 1);
      add_convolution(width, width, 3);
      add_convolution(width, 4 * width, 1);
      if (block == 0) add_convolution(channels, 4 * width, 1);  // the shortcut past these three
      channels = 4 * width;
    }
    width *= 2;
  }
  set.insert(set.end(), {channels * 1000, 1000});
  std::reverse(set.begin(), set.end());
  return set;
}

TensorSet divisible(TensorSet set, int parts) {
  for (std::int64_t& elements : set) elements = std::max<std::int64_t>(elements / parts, 1) * parts;
  return set;
}

}  // namespace hvd::bench
