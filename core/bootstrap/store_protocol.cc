#include "core/bootstrap/store_protocol.h"

#include "core/base/error.h"

namespace hvd {

Bytes encode_store_request(const StoreRequest& request) {
  ByteWriter writer;
  writer.put(request.id);
  writer.put(static_cast<std::uint8_t>(request.operation));
  writer.put_string(request.key);
  if (request.operation == StoreOperation::set) writer.put_string(request.value);
  if (request.operation == StoreOperation::add) writer.put(request.amount);
  return writer.take();
}

StoreRequest parse_store_request(std::span<const std::byte> message) {
  ByteReader reader(message);
  StoreRequest request;
  request.id = reader.get<std::uint32_t>();
  request.operation = static_cast<StoreOperation>(reader.get<std::uint8_t>());
  request.key = reader.get_string();
  switch (request.operation) {
    case StoreOperation::set: request.value = reader.get_string(); break;
    case StoreOperation::get: break;
    case StoreOperation::add: request.amount = reader.get<std::int64_t>(); break;
    default: throw Internal("malformed store request: unknown operation");
  }
  reader.expect_end();
  return request;
}

Bytes encode_store_answer(std::uint32_t id, StatusCode code, std::string_view text) {
  ByteWriter writer;
  writer.put(id);
  writer.put(static_cast<std::uint8_t>(code));
  writer.put_string(text);
  return writer.take();
}

StoreAnswer parse_store_answer(std::span<const std::byte> message) {
  ByteReader reader(message);
  StoreAnswer answer;
  answer.id = reader.get<std::uint32_t>();
  const auto code = reader.get<std::uint8_t>();
  if (code > static_cast<std::uint8_t>(StatusCode::internal)) {
    throw Internal("malformed store answer: unknown status code");
  }
  answer.code = static_cast<StatusCode>(code);
  answer.text = reader.get_string();
  reader.expect_end();
  return answer;
}

void check_store_key(const std::string& key) {
  if (key.size() <= kMaxStoreKeyBytes) return;
  throw InvalidArgument("a store key of " + std::to_string(key.size()) + " bytes; at most " +
                        std::to_string(kMaxStoreKeyBytes) + " are allowed");
}

void check_store_value(const std::string& key, const std::string& value) {
  if (value.size() <= kMaxStoreValueBytes) return;
  throw InvalidArgument("the store's value for '" + key + "' has " + std::to_string(value.size()) + " bytes; at most " +
                        std::to_string(kMaxStoreValueBytes) + " are allowed");
}

}  // namespace hvd
