// The messages between Store and StoreServer, one per frame, and the limits of keys and values. Pure.
//
//   request   id u32, operation u8, key string, then  set: value string   get: nothing   add: amount i64
//   answer    id u32, status code u8, text string     (text: the value, the counter in decimal, or the error's message)
//
// A client has one request in progress. The id lets it recognise the late answer to a get that it gave up; a waiting
// get is cancelled when the same client sends another request.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/net/byte_codec.h"

namespace hvd {

inline constexpr std::size_t kMaxStoreKeyBytes = 4096;
inline constexpr std::size_t kMaxStoreValueBytes = std::size_t{16} << 20;
// The largest set request, and thus the largest frame that either side accepts.
inline constexpr std::size_t kMaxStoreFrameBytes = kMaxStoreKeyBytes + kMaxStoreValueBytes + 64;

// The cause, once the job has failed. Without an epoch's prefix.
inline constexpr const char* kJobFailureKey = "job/failure";

enum class StoreOperation : std::uint8_t { set = 1, get = 2, add = 3 };

struct StoreRequest {
  std::uint32_t id = 0;
  StoreOperation operation = StoreOperation::get;
  std::string key{};
  std::string value{};      // set
  std::int64_t amount = 0;  // add

  bool operator==(const StoreRequest&) const = default;
};

struct StoreAnswer {
  std::uint32_t id = 0;
  StatusCode code = StatusCode::ok;
  std::string text{};

  bool operator==(const StoreAnswer&) const = default;
};

Bytes encode_store_request(const StoreRequest& request);
// Throws Internal on anything that encode_store_request cannot have made.
StoreRequest parse_store_request(std::span<const std::byte> message);

Bytes encode_store_answer(std::uint32_t id, StatusCode code, std::string_view text);
StoreAnswer parse_store_answer(std::span<const std::byte> message);

// Throw InvalidArgument above the limits.
void check_store_key(const std::string& key);
void check_store_value(const std::string& key, const std::string& value);

}  // namespace hvd
