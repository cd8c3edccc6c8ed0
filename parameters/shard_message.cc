#include "parameters/shard_message.h"

#include <algorithm>
#include <cstring>

namespace hvd {

std::size_t ShardMessage::payload_bytes() const {
  if (!has_rows()) return payload.size();
  const std::size_t gradients = has_gradients() ? width * sizeof(float) : 0;
  return request.rows * (sizeof(std::uint64_t) + gradients);
}

void ShardMessage::write_payload(std::byte* to) const {
  if (has_rows()) return write_rows(to);
  if (!payload.empty()) std::memcpy(to, payload.data(), payload.size());
}

void ShardMessage::write_rows(std::byte* to) const {
  const std::size_t count = request.rows;
  const std::size_t row_bytes = width * sizeof(float);
  if (places.empty()) {
    std::memcpy(to, rows.keys.data() + first, count * sizeof(std::uint64_t));
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(to + i * sizeof(std::uint64_t), &rows.keys[places[i]], sizeof(std::uint64_t));
    }
  }
  if (!has_gradients()) return;
  std::byte* const values = to + count * sizeof(std::uint64_t);
  const std::size_t total = rows.values;
  if (places.empty()) {
    const std::size_t begin = first * width, there = std::min(count * width, total - begin);
    std::memcpy(values, rows.gradients + begin, there * sizeof(float));
    std::memset(values + there * sizeof(float), 0, count * row_bytes - there * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(values + i * row_bytes, rows.gradients + places[i] * width, row_bytes);
  }
}

bool ShardMessage::copy_rows(std::span<const std::byte> answer) const {
  const std::size_t count = request.rows;
  if (answer.size() != count * width * sizeof(float)) return false;
  if (places.empty()) {
    const std::size_t begin = first * width, there = std::min(count * width, rows.values - begin);
    std::memcpy(rows.rows + begin, answer.data(), there * sizeof(float));
    return true;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(rows.rows + places[i] * width, answer.data() + i * width * sizeof(float), width * sizeof(float));
  }
  return true;
}

void ShardMessage::cache_rows(std::span<const std::byte> answer) const {
  if (cache == nullptr) return;
  const auto* const values = reinterpret_cast<const float*>(answer.data());  // payloads are aligned
  for (std::size_t i = 0; i < request.rows; ++i) {
    cache->keep(key(i), request.clock, values + i * width);
  }
}

}  // namespace hvd
